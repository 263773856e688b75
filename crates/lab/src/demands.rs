//! `[[demand]]` of an experiment file: memory that the kernel wants for itself.

use highorder_mm::slab::CacheId;
use highorder_mm::types::{MAX_PAGE_ORDER, Order};
use highorder_sim::Ns;
use highorder_sim::kernel::demand::{Demand, DemandKind};
use serde::Deserialize;
use serde_spanned::Spanned;
use std::ops::Range;

/// Requests a second: a million leave none a microsecond.
const RATE_PER_S: Range<f64> = 0.001..1_000_001.0;
/// Mean time a block is held: up to a day.
const LIFETIME_S: Range<f64> = 0.000_001..86_401.0;

/// One demand as the file gives it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DemandValues {
    kind: Spanned<String>,
    order: Option<Spanned<u8>>,
    size: Option<Spanned<u32>>,
    gfp: Option<Spanned<String>>,
    rate_per_s: Spanned<f64>,
    lifetime_s: Spanned<f64>,
}

impl DemandValues {
    /// Where the demand stands in the file.
    pub(crate) fn span(&self) -> Range<usize> {
        self.kind.span()
    }

    /// The demand, or what is wrong with it and where.
    pub(crate) fn finish(&self) -> Result<Demand, Vec<(Range<usize>, String)>> {
        let mut problems = Vec::new();
        let mut refuse = |span: Range<usize>, message: String| problems.push((span, message));
        let kind = self.kind.get_ref();
        let found = DemandKind::ALL.into_iter().find(|known| known.name() == kind);
        if found.is_none() {
            let expected = highorder_input::expected(kind, &DemandKind::ALL.map(DemandKind::name));
            refuse(self.kind.span(), format!("`kind` is `{kind}`, {expected}"));
        }
        let order = self.order.as_ref().map_or(0, |order| *order.get_ref());
        if let Some(given) = &self.order {
            if order > MAX_PAGE_ORDER {
                let message =
                    format!("`order` is {order}, expected 0..={MAX_PAGE_ORDER} (MAX_PAGE_ORDER)");
                refuse(given.span(), message);
            }
            if matches!(found, Some(DemandKind::KernelStack | DemandKind::Object)) {
                let message =
                    format!("`order` is given for {kind}, expected none: the kernel has its own");
                refuse(given.span(), message);
            }
        }
        let bytes = self.size.as_ref().map_or(0, |size| *size.get_ref());
        match (&self.size, found) {
            (Some(given), Some(DemandKind::Object)) => {
                if bytes == 0 || CacheId::kmalloc(bytes).is_none() {
                    let message = format!("`size` is {bytes}, expected 1 to 8192 bytes");
                    refuse(given.span(), message);
                }
            }
            (None, Some(DemandKind::Object)) => {
                refuse(self.kind.span(), "an object needs a `size` in bytes".to_owned());
            }
            (Some(given), _) => {
                let message = format!("`size` is given for {kind}, expected it for objects alone");
                refuse(given.span(), message);
            }
            (None, _) => {}
        }
        let gfp = self.gfp.as_ref();
        let sleeps = match gfp.map(|gfp| gfp.get_ref().as_str()) {
            None | Some("sleeping") => true,
            Some("atomic") => false,
            Some(other) => {
                let message = format!("`gfp` is `{other}`, expected sleeping or atomic");
                refuse(gfp.map_or(0..0, Spanned::span), message);
                true
            }
        };
        if found == Some(DemandKind::KernelStack) && !sleeps {
            let message = "`gfp` is `atomic`, expected sleeping: threads are started by tasks";
            refuse(gfp.map_or(0..0, Spanned::span), message.to_owned());
        }
        let mut within = |key: &str, value: &Spanned<f64>, range: Range<f64>, unit: &str| {
            let number = *value.get_ref();
            if !range.contains(&number) {
                let (least, most) = (range.start, range.end - 1.0);
                let message = format!("`{key}` is {number}, expected {least} to {most} {unit}");
                refuse(value.span(), message);
            }
            number
        };
        let rate = within("rate_per_s", &self.rate_per_s, RATE_PER_S, "requests a second");
        let lifetime = within("lifetime_s", &self.lifetime_s, LIFETIME_S, "seconds");
        match found.filter(|_| problems.is_empty()) {
            Some(kind) => Ok(Demand {
                kind,
                order: Order(order),
                bytes,
                sleeps,
                gap: Ns((1e9 / rate).round() as u64),
                lifetime: Ns((lifetime * 1e9).round() as u64),
            }),
            None => Err(problems),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Demand, Vec<String>> {
        let values: DemandValues = toml::from_str(text).unwrap();
        values
            .finish()
            .map_err(|problems| problems.into_iter().map(|(_, message)| message).collect())
    }

    #[test]
    fn a_demand_is_read_with_its_rate_and_lifetime() {
        let packets = "kind = \"network-buffer\"\norder = 3\ngfp = \"atomic\"\n\
                       rate_per_s = 4.0\nlifetime_s = 0.5\n";
        let expected = Demand {
            kind: DemandKind::NetworkBuffer,
            order: Order(3),
            bytes: 0,
            sleeps: false,
            gap: Ns::from_millis(250),
            lifetime: Ns::from_millis(500),
        };
        assert_eq!(read(packets), Ok(expected));
        let objects = "kind = \"object\"\nsize = 200\nrate_per_s = 1000.0\nlifetime_s = 60.0\n";
        let found = read(objects).unwrap();
        assert_eq!((found.kind, found.bytes, found.sleeps), (DemandKind::Object, 200, true));
    }

    #[test]
    fn what_is_wrong_with_a_demand_is_said_key_by_key() {
        let rest = "rate_per_s = 1.0\nlifetime_s = 1.0\n";
        for (keys, expected) in [
            ("kind = \"objects\"", "`kind` is `objects`, did you mean `object`?"),
            ("kind = \"dentries\"", "`kind` is `dentries`, expected one of kernel-stack,"),
            ("kind = \"object\"", "an object needs a `size` in bytes"),
            ("kind = \"object\"\nsize = 8193", "`size` is 8193, expected 1 to 8192 bytes"),
            ("kind = \"object\"\nsize = 8\norder = 1", "`order` is given for object"),
            ("kind = \"pipe\"\nsize = 8", "`size` is given for pipe"),
            ("kind = \"pipe\"\norder = 11", "`order` is 11, expected 0..=10"),
            ("kind = \"kernel-stack\"\ngfp = \"atomic\"", "`gfp` is `atomic`"),
        ] {
            let problems = read(&format!("{keys}\n{rest}")).unwrap_err();
            assert_eq!(problems.len(), 1, "{keys}: {problems:?}");
            assert!(problems[0].starts_with(expected), "{keys}: {problems:?}");
        }
        let never = read("kind = \"pipe\"\nrate_per_s = 0.0\nlifetime_s = 1e9\n").unwrap_err();
        assert_eq!(never.len(), 2, "{never:?}");
    }
}
