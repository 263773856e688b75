//! A knob: what it does, what it takes, and what it is on each kernel.

use super::{Shown, begun};
use crate::failure::Failure;
use highorder_kernels::KernelFile;
use highorder_lab::catalogue::{self, Kind};
use highorder_model::{Knob, KnobValue};
use serde_json::{Value as Json, json};

const COMPUTED: &str = "computed from the machine's memory";

/// All that there is to say of a knob.
pub(super) fn shown(name: &str) -> Result<Shown, Failure> {
    let knob = Knob::find(name)
        .ok_or_else(|| Failure::internal(format!("no knob `{name}` among those listed")))?;
    let mut kernels = Vec::new();
    for kernel in catalogue::names(Kind::Kernel) {
        let value = KernelFile::load(&kernel)?;
        let value = knob.on(&value.release, &value.policy, &value.flows);
        kernels.push((kernel, value));
    }
    let mut sheet = begun(Kind::Knob, name, knob.about);
    let takes = knob.allowed();
    let since = knob.since.map(|(major, minor)| format!("Linux {major}.{minor}"));
    let mut rows = vec![("takes", takes.as_str())];
    rows.extend((!knob.unit.is_empty()).then_some(("unit", knob.unit)));
    rows.extend(since.as_deref().map(|since| ("since", since)));
    sheet.line("");
    sheet.fields("", &rows);
    sheet.heading("At boot");
    // Kernels of one value in one line.
    let mut values: Vec<(KnobValue, Vec<&str>)> = Vec::new();
    for (kernel, value) in &kernels {
        let Some(value) = value else { continue };
        match values.iter_mut().find(|(known, _)| known == value) {
            Some((_, kernels)) => kernels.push(kernel),
            None => values.push((value.clone(), vec![kernel])),
        }
    }
    let rows: Vec<(String, String)> = values
        .iter()
        .map(|(value, kernels)| {
            let default = value.default.clone().unwrap_or_else(|| COMPUTED.to_owned());
            let others = match value.allowed == takes {
                true => String::new(),
                false => format!("; there it takes {}", value.allowed),
            };
            (default, format!("{}{others}", kernels.join(", ")))
        })
        .collect();
    sheet.fields("  ", &rows);
    let lacking: Vec<&str> = kernels
        .iter()
        .filter(|(_, value)| value.is_none())
        .map(|(kernel, _)| kernel.as_str())
        .collect();
    if !lacking.is_empty() {
        sheet.heading("Kernels without it");
        sheet.paragraph("  ", &lacking.join(", "));
    }
    sheet.heading("In a variant of an experiment");
    let example = values.first().and_then(|(value, _)| value.default.clone());
    let example = example.unwrap_or_else(|| "65536".to_owned());
    let example = match example.parse::<u64>() {
        Ok(number) => number.to_string(),
        Err(_) => format!("\"{example}\""),
    };
    sheet.line(&format!("  knobs = {{ \"{name}\" = {example} }}"));
    let json = json!({
        "kind": "knob",
        "name": name,
        "about": knob.about,
        "unit": knob.unit,
        "allowed": takes,
        "since": since,
        "kernels": kernels.iter().map(kernel_json).collect::<Vec<_>>(),
    });
    Ok(Shown { sheet, json })
}

fn kernel_json((kernel, value): &(String, Option<KnobValue>)) -> Json {
    json!({
        "kernel": kernel,
        "has_it": value.is_some(),
        "default": value.as_ref().and_then(|value| value.default.clone()),
        "allowed": value.as_ref().map(|value| value.allowed.clone()),
    })
}
