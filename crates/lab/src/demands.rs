//! `[[demand]]` of an experiment file: memory that the kernel wants for itself.

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
            let known = DemandKind::ALL.map(DemandKind::name).join(", ");
            refuse(self.kind.span(), format!("`kind` is `{kind}`, expected one of {known}"));
        }
        let order = self.order.as_ref().map_or(0, |order| *order.get_ref());
        if let Some(given) = &self.order {
            if order > MAX_PAGE_ORDER {
                let message =
                    format!("`order` is {order}, expected 0..={MAX_PAGE_ORDER} (MAX_PAGE_ORDER)");
                refuse(given.span(), message);
            }
            if found == Some(DemandKind::KernelStack) {
                let message = "`order` is given for stacks, which have the kernel's own";
                refuse(given.span(), message.to_owned());
            }
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
                sleeps,
                gap: Ns((1e9 / rate).round() as u64),
                lifetime: Ns((lifetime * 1e9).round() as u64),
            }),
            None => Err(problems),
        }
    }
}
