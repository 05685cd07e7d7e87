// SPDX-License-Identifier: GPL-2.0

//! Doorbells that are sent away under every interleaving with a visit that leaves: no request is
//! forgotten.

#[path = "common/explore.rs"]
mod explore;

use explore::explore;
use loom::{
    sync::{
        atomic::{
            AtomicBool,
            AtomicUsize,
            Ordering, //
        },
        Mutex, //
    },
    thread, //
};
use sluice_gate_loom::transport::attendance::Attendance;
use std::sync::Arc;

/// A ring and its sending side, reduced to what matters here: how many requests were posted, and
/// how many were carried out, under the lock of the sending side.
struct Queue {
    posted: AtomicUsize,
    done: Mutex<usize>,
    attendance: Attendance,
    /// Visits that the workqueue has still to make.
    due: AtomicUsize,
    /// Whether the queue pair is in the reset state, in which nothing is carried out.
    reset: AtomicBool,
}

impl Queue {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            posted: AtomicUsize::new(0),
            done: Mutex::new(0),
            attendance: Attendance::default(),
            due: AtomicUsize::new(0),
            reset: AtomicBool::new(false),
        })
    }

    fn has_work(&self, done: usize) -> bool {
        !self.reset.load(Ordering::Acquire) && self.posted.load(Ordering::Acquire) != done
    }

    fn work(&self, done: &mut usize) {
        if self.has_work(*done) {
            *done = self.posted.load(Ordering::Acquire);
        }
    }

    /// As `Qp::doorbell`.
    fn post(&self) {
        // The indices of a ring are the program's stores: release, and no more than that.
        let posted = self.posted.load(Ordering::Relaxed);
        self.posted.store(posted + 1, Ordering::Release);
        if self.attendance.is_attended() {
            return;
        }
        match self.done.try_lock() {
            Ok(mut done) => {
                self.work(&mut done);
            }
            Err(_) => {
                self.due.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// As `Requester::visit`.
    fn attend(&self) {
        let mut done = self.done.lock().unwrap();
        self.attendance.begin();
        loop {
            self.work(&mut done);
            if self.attendance.leave(|| self.has_work(*done)) {
                return;
            }
        }
    }

    /// A visit whose quantum is used up before it has seen all, so that another one is due.
    fn begin_to_attend(&self) {
        let mut done = self.done.lock().unwrap();
        self.attendance.begin();
        self.work(&mut done);
        self.due.fetch_add(1, Ordering::Relaxed);
    }

    /// As `Qp::set_state` and `Qp::discard`. A visit may still be due, or begin just now.
    fn reset(&self) {
        self.reset.store(true, Ordering::Release);
        let mut done = self.done.lock().unwrap();
        self.attendance.end();
        *done = self.posted.load(Ordering::Relaxed);
    }

    /// The visits that are due are made; then nothing may be left.
    fn check(&self) {
        while self.due.load(Ordering::Relaxed) > 0 {
            self.due.fetch_sub(1, Ordering::Relaxed);
            self.attend();
        }
        let posted = self.posted.load(Ordering::Relaxed);
        assert_eq!(
            posted,
            *self.done.lock().unwrap(),
            "a request was forgotten"
        );
        assert!(!self.attendance.is_attended(), "the flag was left up");
    }
}

#[test]
fn a_request_posted_while_the_workqueue_leaves_is_seen() {
    explore(
        "a_request_posted_while_the_workqueue_leaves_is_seen",
        || {
            let queue = Queue::new();
            let worker = {
                let queue = queue.clone();
                thread::spawn(move || queue.attend())
            };
            queue.post();
            queue.post();
            worker.join().unwrap();
            queue.check();
        },
    );
}

#[test]
fn a_workqueue_that_comes_again_loses_nothing() {
    explore("a_workqueue_that_comes_again_loses_nothing", || {
        let queue = Queue::new();
        let workers = [0, 1].map(|_| {
            let queue = queue.clone();
            thread::spawn(move || queue.attend())
        });
        queue.post();
        for worker in workers {
            worker.join().unwrap();
        }
        queue.check();
    });
}

#[test]
fn a_request_posted_between_two_visits_is_seen() {
    explore("a_request_posted_between_two_visits_is_seen", || {
        let queue = Queue::new();
        let worker = {
            let queue = queue.clone();
            thread::spawn(move || {
                queue.begin_to_attend();
                queue.due.fetch_sub(1, Ordering::Relaxed);
                queue.attend();
            })
        };
        queue.post();
        queue.post();
        worker.join().unwrap();
        queue.check();
    });
}

#[test]
fn a_visit_that_a_reset_overtakes_leaves_no_flag() {
    explore("a_visit_that_a_reset_overtakes_leaves_no_flag", || {
        let queue = Queue::new();
        queue.post();
        queue.begin_to_attend();
        queue.post();
        queue.due.fetch_sub(1, Ordering::Relaxed);
        let late = {
            let queue = queue.clone();
            thread::spawn(move || queue.attend())
        };
        queue.reset();
        // As `Qp::stop_visits`.
        late.join().unwrap();
        queue.reset.store(false, Ordering::Release);
        queue.post();
        queue.check();
    });
}
