// SPDX-License-Identifier: GPL-2.0

//! Runs a model under its interleavings.

use std::{
    io::Write,
    sync::{
        atomic::{
            AtomicUsize as Tally,
            Ordering, //
        },
        Arc, //
    }, //
};

/// Runs `model` under every interleaving, and says how many there were.
///
/// `LOOM_MAX_PREEMPTIONS` bounds the preemptions of one run, for a first quick look.
pub fn explore(name: &str, model: impl Fn() + Send + Sync + 'static) {
    explore_within(name, None, model);
}

/// As [`explore`], of at most `bound` preemptions unless that is `None`.
pub fn explore_within(name: &str, bound: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let runs = Arc::new(Tally::new(0));
    let mut explorer = loom::model::Builder::new();
    explorer.max_permutations = None;
    explorer.max_duration = None;
    explorer.max_branches = 2_000;
    explorer.preemption_bound = explorer.preemption_bound.or(bound);
    explorer.check({
        let runs = runs.clone();
        move || {
            runs.fetch_add(1, Ordering::Relaxed);
            model();
        }
    });
    // Not with `println!`, whose output the test harness keeps to itself.
    let bound = explorer
        .preemption_bound
        .map(|bound| format!(" of at most {bound} preemptions"))
        .unwrap_or_default();
    let runs = runs.load(Ordering::Relaxed);
    let line = format!("{name}: {runs} interleavings{bound}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}
