//! Programs that go on while others run.

use highorder_system::{Code, Failure, Ns, System, ThreadId, ThreadSpec};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// What programs in the background tell, and are told.
#[derive(Default)]
pub(crate) struct Signals {
    nr_waiting: AtomicU32,
    /// Programs that ended before they were ready.
    nr_failed: AtomicU32,
    is_over: AtomicBool,
}

/// One program's part of them. Nobody waits for it any more when it has ended, however it did.
pub(crate) struct Signal {
    signals: Arc<Signals>,
    is_ready: AtomicBool,
}

impl Signal {
    /// What others wait for is there.
    pub(crate) fn set_ready(&self) {
        if !self.is_ready.swap(true, Ordering::Relaxed) {
            self.signals.nr_waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether the program is to end.
    pub(crate) fn is_over(&self) -> bool {
        self.signals.is_over.load(Ordering::Relaxed)
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        if !self.is_ready.load(Ordering::Relaxed) {
            self.signals.nr_failed.fetch_add(1, Ordering::Relaxed);
            self.set_ready();
        }
    }
}

/// Programs in the background. They end with it at the latest: whoever started them may be killed.
#[derive(Default)]
pub(crate) struct Background {
    signals: Arc<Signals>,
    started: Vec<ThreadId>,
}

impl Background {
    /// Starts one as a process of its own.
    pub(crate) fn start(
        &mut self,
        sys: &mut dyn System,
        name: &str,
        program: impl FnOnce(&mut dyn System, &Signal) -> Result<(), Failure> + Send + 'static,
    ) -> Result<(), Failure> {
        self.start_on(sys, ThreadSpec::process(name), program)
    }

    /// Starts one as this says.
    pub(crate) fn start_on(
        &mut self,
        sys: &mut dyn System,
        spec: ThreadSpec,
        program: impl FnOnce(&mut dyn System, &Signal) -> Result<(), Failure> + Send + 'static,
    ) -> Result<(), Failure> {
        self.signals.nr_waiting.fetch_add(1, Ordering::Relaxed);
        let signal = Signal { signals: self.signals.clone(), is_ready: AtomicBool::new(false) };
        let code: Code = Box::new(move |sys| program(sys, &signal));
        self.started.push(sys.spawn(spec, code)?);
        Ok(())
    }

    /// Waits until all of them are.
    ///
    /// # Errors
    /// One ended before, perhaps killed for want of memory.
    pub(crate) fn wait_until_ready(&self, sys: &mut dyn System) -> Result<(), Failure> {
        const PAUSE: Ns = Ns::from_millis(10);
        while self.signals.nr_waiting.load(Ordering::Relaxed) > 0 {
            sys.sleep(PAUSE)?;
        }
        match self.signals.nr_failed.load(Ordering::Relaxed) {
            0 => Ok(()),
            _ => Err(Failure::Refused("a program in the background ended early".to_owned())),
        }
    }

    /// Has all of them end. One that ran out of memory and was killed has ended, too.
    pub(crate) fn end(mut self, sys: &mut dyn System) -> Result<(), Failure> {
        self.signals.is_over.store(true, Ordering::Relaxed);
        let mut first = Ok(());
        for program in std::mem::take(&mut self.started) {
            let ended = match sys.join(program) {
                Ok(()) | Err(Failure::Killed) => Ok(()),
                failure => failure,
            };
            first = first.and(ended);
        }
        first
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.signals.is_over.store(true, Ordering::Relaxed);
    }
}
