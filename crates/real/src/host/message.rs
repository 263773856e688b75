//! What the workload's processes tell the process that runs them.
//!
//! Messages go through a pipe, which every kernel has, in frames that are written whole (`PIPE_BUF`): the sender's
//! thread number, the bytes of the message that are left, with this frame's first, and as many of them as fit.

use highorder_record::{Better, Metric, Statistic};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::thread::gettid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The longest message.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Linux's `PIPE_BUF`: writes of so much at most are not mixed with others.
const FRAME_BYTES: usize = 4096;
/// Before each frame's bytes: who sends, and what is left of the message.
const HEAD_BYTES: usize = 8;
/// What is read at once, many frames.
const READ_BYTES: usize = 64 << 10;

/// The listener's end, which never waits, and the end of those who tell.
///
/// # Errors
/// The operating system has no pipe to give.
pub(crate) fn channel() -> std::io::Result<(Listener, OwnedFd)> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setfl(&ours, OFlags::NONBLOCK)?;
    Ok((Listener { pipe: ours, read: Vec::new(), begun: BTreeMap::new() }, theirs))
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// A sample of a metric, as the bits of a double: JSON has no word for what is not a number.
    Sample { like: MetricHead, bits: u64 },
    /// Latencies of a class.
    Latencies { class: String, ns: Vec<u64> },
    /// The state of memory is to be noted; the task waits.
    Held { task: u32 },
    /// The run's counters begin here; the task waits.
    Before { task: u32 },
    /// A knob is to be set; the task waits.
    SetKnob { task: u32, name: String, value: String },
}

/// A metric without samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MetricHead {
    name: String,
    unit: String,
    better: Better,
    decimals: u8,
    statistics: Vec<Statistic>,
}

impl MetricHead {
    pub(crate) fn of(metric: &Metric) -> Self {
        Self {
            name: metric.name.clone(),
            unit: metric.unit.clone(),
            better: metric.better,
            decimals: metric.decimals,
            statistics: metric.statistics.clone(),
        }
    }

    pub(crate) fn metric(self) -> Metric {
        Metric {
            name: self.name,
            unit: self.unit,
            better: self.better,
            decimals: self.decimals,
            statistics: self.statistics,
            samples: Vec::new(),
        }
    }
}

impl Message {
    /// Sends it, waiting for room. If nobody listens any more the run is over and so is this process soon.
    pub(crate) fn send(&self, pipe: BorrowedFd<'_>) {
        let message = serde_json::to_vec(self).expect("a message is JSON");
        assert!(message.len() <= MESSAGE_BYTES_MAX, "a message of {} bytes", message.len());
        let sender = gettid().as_raw_nonzero().get().cast_unsigned();
        let mut left = message.as_slice();
        while !left.is_empty() {
            let (now, rest) = left.split_at(left.len().min(FRAME_BYTES - HEAD_BYTES));
            let head = [sender.to_ne_bytes(), (left.len() as u32).to_ne_bytes()];
            let frame = [head.as_flattened(), now].concat();
            while rustix::io::write(pipe, &frame) == Err(Errno::INTR) {}
            left = rest;
        }
    }
}

/// Who listens to what the processes tell.
#[derive(Debug)]
pub(crate) struct Listener {
    pipe: OwnedFd,
    /// What was read and is not a whole frame yet, or not looked at.
    read: Vec<u8>,
    /// Messages of which frames are missing, by sender.
    begun: BTreeMap<u32, Vec<u8>>,
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl Listener {
    /// The next message: none if there is none yet, an error if all senders are gone.
    pub(crate) fn receive(&mut self) -> Result<Option<Message>, Gone> {
        loop {
            while let Some((sender, left, bytes)) = self.take_frame() {
                let begun = self.begun.entry(sender).or_default();
                begun.extend(bytes);
                if left == 0 {
                    let message = self.begun.remove(&sender).unwrap_or_default();
                    return Ok(serde_json::from_slice(&message).ok());
                }
            }
            let mut more = vec![0; READ_BYTES];
            match rustix::io::read(&self.pipe, &mut more[..]) {
                Ok(0) => return Err(Gone),
                Ok(len) => self.read.extend(&more[..len]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(_) => return Err(Gone),
            }
        }
    }

    /// The first frame of what was read: its sender, what is left of its message after it, and its bytes.
    fn take_frame(&mut self) -> Option<(u32, usize, Vec<u8>)> {
        let (head, _) = self.read.split_at_checked(HEAD_BYTES)?;
        let (sender, left) = head.split_at(HEAD_BYTES / 2);
        let number = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().expect("four bytes"));
        let (sender, left) = (number(sender), number(left) as usize);
        let here = left.min(FRAME_BYTES - HEAD_BYTES);
        if self.read.len() < HEAD_BYTES + here {
            return None;
        }
        let frame: Vec<u8> = self.read.drain(..HEAD_BYTES + here).skip(HEAD_BYTES).collect();
        Some((sender, left - here, frame))
    }
}

/// There are no senders any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gone;

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn messages_arrive_whole_and_in_order() {
        let (mut ours, theirs) = channel().unwrap();
        assert_eq!(ours.receive(), Ok(None));
        let metric = Metric::new("System-4", "s", Better::Lower);
        let sent = [
            Message::Sample { like: MetricHead::of(&metric), bits: f64::NAN.to_bits() },
            Message::Latencies { class: "fault".into(), ns: vec![u64::MAX; 512] },
            Message::Held { task: 3 },
        ];
        sent.iter().for_each(|message| message.send(theirs.as_fd()));
        drop(theirs);
        for message in sent {
            assert_eq!(ours.receive(), Ok(Some(message)));
        }
        assert_eq!(ours.receive(), Err(Gone));
    }

    #[test]
    fn long_messages_of_many_senders_do_not_mix() {
        let (mut ours, theirs) = channel().unwrap();
        let latencies = |sender: u64, number: u64| Message::Latencies {
            class: format!("{sender}-{number}"),
            ns: vec![u64::MAX - sender; 512],
        };
        let mut expected = Vec::new();
        let mut arrived = Vec::new();
        thread::scope(|scope| {
            for sender in 0..4 {
                expected.extend((0..20).map(|number| latencies(sender, number)));
                let theirs = theirs.try_clone().unwrap();
                scope.spawn(move || {
                    (0..20).for_each(|number| latencies(sender, number).send(theirs.as_fd()));
                });
            }
            drop(theirs);
            loop {
                match ours.receive() {
                    Ok(Some(message)) => arrived.push(message),
                    Ok(None) => thread::yield_now(),
                    Err(Gone) => break,
                }
            }
        });
        assert_eq!(arrived.len(), expected.len());
        assert!(expected.iter().all(|message| arrived.contains(message)));
    }
}
