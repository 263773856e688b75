//! What `/proc` says at one moment.

use highorder_input::InputError;
use highorder_kernelfs::{Buddyinfo, Meminfo, TextFile, Vmstat, Zoneinfo};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What `/proc` says at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// When, in seconds of a clock that only rises.
    pub seconds: f64,
    /// `/proc/vmstat`: pages and events since boot.
    pub vmstat: BTreeMap<String, u64>,
    /// `/proc/meminfo`: KiB, but for counts of huge pages.
    pub meminfo: Vec<MeminfoValue>,
    /// Zones with memory.
    pub zones: Vec<Zone>,
    /// Time in which some, and in which all tasks waited for memory, in microseconds since boot; where the kernel
    /// tells (`/proc/pressure/memory`).
    pub pressure_us: Option<[u64; 2]>,
}

/// A line of `/proc/meminfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeminfoValue {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: u64,
    /// Whether that is in KiB.
    pub is_kib: bool,
}

/// A zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// Its node.
    pub node: u32,
    /// Its name.
    pub name: String,
    /// Pages that its allocator has.
    pub managed: u64,
    /// Free pages.
    pub free: u64,
    /// Watermarks in force, in pages: min, low, high.
    pub marks: [u64; 3],
    /// Free blocks of each order.
    pub blocks: Vec<u64>,
}

impl Sample {
    /// Reads a `/proc`.
    ///
    /// # Errors
    /// `vmstat`, `zoneinfo`, `meminfo` or `buddyinfo` cannot be read.
    pub fn read(proc: &Path, seconds: f64) -> Result<Self, InputError> {
        let vmstat = Vmstat::read(proc.join("vmstat"))?;
        let meminfo = Meminfo::read(proc.join("meminfo"))?;
        let zoneinfo = Zoneinfo::read(proc.join("zoneinfo"))?;
        let buddyinfo = Buddyinfo::read(proc.join("buddyinfo"))?;
        let pressure = fs::read_to_string(proc.join("pressure/memory"));
        Ok(Self {
            seconds,
            vmstat: vmstat.iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            meminfo: meminfo
                .fields
                .into_iter()
                .map(|f| MeminfoValue { name: f.name, value: f.value, is_kib: f.kilobytes })
                .collect(),
            zones: zones(&zoneinfo, &buddyinfo),
            pressure_us: pressure.ok().and_then(|text| totals(&text)),
        })
    }

    /// A counter by its name: of vmstat, of meminfo, or `psi_memory_some_us` and `psi_memory_full_us`. `allocstall` is
    /// the sum over zones, which kernels since 4.10 count apart.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<f64> {
        let of_vmstat = self.vmstat.get(name).copied();
        let of_meminfo = || self.meminfo.iter().find(|f| f.name == name).map(|f| f.value);
        let value = of_vmstat.or_else(of_meminfo).or_else(|| match name {
            "allocstall" => self.sum("allocstall_"),
            "psi_memory_some_us" => Some(self.pressure_us?[0]),
            "psi_memory_full_us" => Some(self.pressure_us?[1]),
            _ => None,
        });
        value.map(|value| value as f64)
    }

    /// The sum of all counters whose names begin so; `None` if there are none.
    fn sum(&self, prefix: &str) -> Option<u64> {
        let values = self.vmstat.iter().filter(|(name, _)| name.starts_with(prefix));
        values.map(|(_, value)| *value).reduce(|a, b| a + b)
    }

    /// How fast a counter rose since another sample, in its unit a second.
    #[must_use]
    pub fn rate(&self, before: &Sample, name: &str) -> Option<f64> {
        let seconds = self.seconds - before.seconds;
        let rose = self.value(name)? - before.value(name)?;
        (seconds > 0.0).then(|| rose / seconds)
    }
}

fn zones(zoneinfo: &Zoneinfo, buddyinfo: &Buddyinfo) -> Vec<Zone> {
    let present = zoneinfo.zones.iter().filter(|zone| zone.pages.get("present") > Some(0));
    let zone = |row: &highorder_kernelfs::ZoneinfoZone| Zone {
        node: row.node,
        name: row.zone.clone(),
        managed: row.managed().or(row.pages.get("present")).unwrap_or(0),
        free: row.counters.get("nr_free_pages").or(row.pages.get("free")).unwrap_or(0),
        marks: ["min", "low", "high"].map(|mark| row.pages.get(mark).unwrap_or(0)),
        blocks: buddyinfo.zone(row.node, &row.zone).map(|z| z.counts.clone()).unwrap_or_default(),
    };
    present.map(zone).collect()
}

/// `total=` of the lines `some` and `full`: Documentation/accounting/psi.rst.
fn totals(text: &str) -> Option<[u64; 2]> {
    let total = |kind: &str| {
        let line = text.lines().find(|line| line.starts_with(kind))?;
        line.split_once("total=")?.1.trim().parse().ok()
    };
    Some([total("some")?, total("full")?])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A machine that was recorded, at two moments two seconds apart.
    pub(crate) fn two() -> [Sample; 2] {
        let proc =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/proc-recorded/6.18");
        let before = Sample::read(&proc, 10.0).unwrap();
        let mut after = Sample { seconds: 12.0, ..before.clone() };
        for (name, more) in
            [("compact_stall", 50), ("allocstall_normal", 8), ("thp_fault_alloc", 4)]
        {
            *after.vmstat.get_mut(name).unwrap() += more;
        }
        [before, after]
    }

    #[test]
    fn rates_are_per_second_and_allocstall_is_of_all_zones() {
        let [before, after] = two();
        assert_eq!(after.rate(&before, "compact_stall"), Some(25.0));
        assert_eq!(after.rate(&before, "allocstall"), Some(4.0));
        assert_eq!(after.rate(&before, "nr_nothing"), None);
        assert_eq!(before.rate(&before, "compact_stall"), None);
    }

    #[test]
    fn pressure_is_its_totals() {
        let text = "some avg10=0.00 avg60=0.10 avg300=0.00 total=262458265\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=237546241\n";
        assert_eq!(totals(text), Some([262_458_265, 237_546_241]));
        assert_eq!(totals("some avg10=0.00\n"), None);
    }
}
