//! What the workload's processes tell the process that runs them: one message a packet.

use highorder_record::{Better, Metric, Statistic};
use rustix::net::{RecvFlags, SendFlags};
use serde::{Deserialize, Serialize};
use std::os::fd::BorrowedFd;

/// The longest packet. A socket's buffer holds at least one (net.core.wmem_default is 208 KiB).
const PACKET_BYTES_MAX: usize = 64 << 10;

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
    pub(crate) fn send(&self, socket: BorrowedFd<'_>) {
        let packet = serde_json::to_vec(self).expect("a message is JSON");
        assert!(packet.len() <= PACKET_BYTES_MAX, "a message of {} bytes", packet.len());
        while rustix::net::send(socket, &packet, SendFlags::NOSIGNAL)
            == Err(rustix::io::Errno::INTR)
        {}
    }

    /// The next message: none if there is none yet, an error if all senders are gone.
    pub(crate) fn receive(socket: BorrowedFd<'_>) -> Result<Option<Self>, Gone> {
        let mut packet = vec![0; PACKET_BYTES_MAX];
        match rustix::net::recv(socket, &mut packet[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => Err(Gone),
            Ok((len, _)) => Ok(serde_json::from_slice(&packet[..len]).ok()),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(_) => Err(Gone),
        }
    }
}

/// There are no senders any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gone;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::AsFd;

    #[test]
    fn messages_arrive_whole_and_in_order() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        assert_eq!(Message::receive(ours.as_fd()), Ok(None));
        let metric = Metric::new("System-4", "s", Better::Lower);
        let sent = [
            Message::Sample { like: MetricHead::of(&metric), bits: f64::NAN.to_bits() },
            Message::Latencies { class: "fault".into(), ns: vec![u64::MAX; 512] },
            Message::Held { task: 3 },
        ];
        sent.iter().for_each(|message| message.send(theirs.as_fd()));
        drop(theirs);
        for message in sent {
            assert_eq!(Message::receive(ours.as_fd()), Ok(Some(message)));
        }
        assert_eq!(Message::receive(ours.as_fd()), Err(Gone));
    }
}
