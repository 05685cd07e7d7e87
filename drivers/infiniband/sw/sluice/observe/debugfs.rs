// SPDX-License-Identifier: GPL-2.0

//! What a device shows and takes in debugfs: `/sys/kernel/debug/sluice/NAME/`.
//!
//! `hold` lists the hold points and takes commands (see [`Command::parse`]); `waits` shows how long
//! teardowns had to wait.

#![forbid(unsafe_code)]

use super::waits::Waits;
use crate::{
    abstractions::{
        debugfs,
        table::Table, //
    },
    teardown::hold::{
        Command,
        Holds, //
    },
    transport::qp::Qp,
};
use kernel::{
    debugfs::{
        Dir,
        File, //
    },
    fmt,
    prelude::*,
    str::CStr,
    sync::Arc,
    uaccess::UserSliceReader, //
};

/// The longest command.
const MAX_COMMAND: usize = 64;

/// What the file `hold` works on.
struct HoldFile {
    holds: Arc<Holds>,
    qps: Arc<Table<Arc<Qp>>>,
}

impl HoldFile {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_fmt(format_args!("{}", &*self.holds))
    }

    /// # Errors
    ///
    /// `EINVAL` if the command is not understood, `ENOENT` if there is no such transfer.
    fn take(&self, reader: &mut UserSliceReader) -> Result {
        let mut buf = [0; MAX_COMMAND];
        let text = buf.get_mut(..reader.len()).ok_or(EINVAL)?;
        reader.read_slice(text)?;
        let text = core::str::from_utf8(text).map_err(|_| EINVAL)?;
        match Command::parse(text).ok_or(EINVAL)? {
            Command::Hold(target, boundary) => self.holds.add(target, boundary),
            Command::Step(qpn) if self.holds.step(qpn) => {
                self.visit(qpn);
                Ok(())
            }
            Command::Step(_) => Err(ENOENT),
            Command::Release(qpn) => {
                self.holds.release(qpn);
                match qpn {
                    Some(qpn) => self.visit(qpn),
                    None => self.visit_all(),
                }
                Ok(())
            }
        }
    }

    /// Has the transfer of a queue pair looked after, as it may go on now.
    fn visit(&self, qpn: u32) {
        if let Some(qp) = self.qps.lookup(qpn) {
            qp.kick(0);
        }
    }

    fn visit_all(&self) {
        let mut next = 0;
        while let Some((qpn, qp)) = self.qps.lookup_from(next) {
            qp.kick(0);
            next = qpn + 1;
        }
    }
}

/// The files of one device, for as long as this lives.
#[pin_data]
pub(crate) struct Files {
    #[pin]
    hold: File<HoldFile>,
    #[pin]
    waits: File<Arc<Waits>>,
    _folder: Dir,
}

impl Files {
    /// Makes the files of the device called `name`; `None` if there is no debugfs. May sleep.
    pub(crate) fn new(
        name: &CStr,
        holds: &Arc<Holds>,
        qps: &Arc<Table<Arc<Qp>>>,
        waits: &Arc<Waits>,
    ) -> Result<Option<Pin<KBox<Self>>>> {
        let Some(folder) = debugfs::folder(name) else {
            return Ok(None);
        };
        let hold = HoldFile {
            holds: holds.clone(),
            qps: qps.clone(),
        };
        let files = KBox::pin_init(
            try_pin_init!(Self {
                hold <- folder.read_write_callback_file(
                    c"hold",
                    hold,
                    &|file: &HoldFile, f: &mut fmt::Formatter<'_>| file.show(f),
                    &|file: &HoldFile, reader: &mut UserSliceReader| file.take(reader),
                ),
                waits <- folder.read_callback_file(
                    c"waits",
                    waits.clone(),
                    &|waits: &Arc<Waits>, f: &mut fmt::Formatter<'_>| {
                        f.write_fmt(format_args!("{}", &**waits))
                    },
                ),
                _folder: folder.clone(),
            }),
            GFP_KERNEL,
        )?;
        Ok(Some(files))
    }
}
