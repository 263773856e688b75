//! A workload: its parameters, and which experiments have it.

use super::{Shown, begun};
use crate::failure::Failure;
use highorder_input::InputError;
use highorder_lab::Experiment;
use highorder_lab::catalogue::{self, Kind};
use highorder_workload::{ParameterInfo, describe};
use serde_json::{Value as Json, json};

/// All that there is to say of a workload.
pub(super) fn shown(name: &str) -> Result<Shown, Failure> {
    let workload = describe(name)
        .ok_or_else(|| Failure::internal(format!("no workload `{name}` among those listed")))?;
    let mut sheet = begun(Kind::Workload, name, workload.about);
    for parameter in &workload.parameters {
        sheet.heading(&format!("{} = {}", parameter.name, parameter.default));
        sheet.paragraph("    ", parameter.about);
        let unit = if parameter.unit.is_empty() { "-" } else { &parameter.unit };
        let mut rows = vec![("takes", parameter.allowed.as_str())];
        if !parameter.unit.is_empty() {
            rows.push(("unit", unit));
        }
        if parameter.is_scaled {
            rows.push(("scale", "--scale makes it smaller"));
        }
        sheet.fields("    ", &rows);
    }
    let experiments = experiments_with(name)?;
    sheet.heading("Experiments with it");
    match experiments.is_empty() {
        true => sheet.line("  none that comes with the program"),
        false => sheet.paragraph("  ", &experiments.join(", ")),
    }
    sheet.heading("In an experiment of your own");
    sheet.line("  [workload]");
    sheet.line(&format!("  name = \"{name}\""));
    for ParameterInfo { name, default, .. } in &workload.parameters {
        sheet.line(&format!("  {name} = {default}"));
    }
    let json = json!({
        "kind": "workload",
        "name": name,
        "about": workload.about,
        "parameters": workload.parameters.iter().map(parameter_json).collect::<Vec<_>>(),
        "experiments": experiments,
    });
    Ok(Shown { sheet, json })
}

fn parameter_json(parameter: &ParameterInfo) -> Json {
    let ParameterInfo { name, about, unit, allowed, words, default, is_scaled } = parameter;
    json!({
        "name": name,
        "about": about,
        "unit": unit,
        "allowed": allowed,
        "words": words,
        "default": default,
        "is_scaled": is_scaled,
    })
}

fn experiments_with(name: &str) -> Result<Vec<String>, InputError> {
    let mut found = Vec::new();
    for experiment in catalogue::names(Kind::Experiment) {
        let variants = Experiment::load(&experiment)?.variants;
        if variants.iter().any(|variant| variant.workload.name() == name) {
            found.push(experiment);
        }
    }
    Ok(found)
}
