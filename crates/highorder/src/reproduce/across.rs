//! Where claims hold among the machines that a document's may have been.

use super::report::{Judgement, figure, told_number};
use highorder_lab::reproduce::Reproduction;
use highorder_lab::unknowns::{MachineNumber, Unknown, Unknowns};
use highorder_page::document::{Dot, Scatter};
use highorder_record::score::{Decision, Side, Standing, Tally, Verdict, decision};
use highorder_tables::{Column, Table, Value, text};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// The machines that everything was run on, and what each unknown is on each of them.
pub(super) struct Machines {
    numbers: Vec<MachineNumber>,
    unknowns: BTreeMap<String, Vec<Known>>,
}

/// An unknown and its value on each machine; none where the machine has no such thing.
struct Known {
    unknown: Unknown,
    /// The published files that its experiments repeat: of claims about others it decides nothing.
    files: Vec<&'static str>,
    values: Vec<Option<f64>>,
}

/// Where a claim holds.
pub(super) struct Where {
    pub(super) tally: Tally,
    pub(super) decision: Option<Decision>,
    /// What its relation compares first, on each machine.
    quantities: Vec<Option<f64>>,
}

impl Machines {
    /// So many, of the documents of these experiments.
    pub(super) fn new(
        numbers: Vec<MachineNumber>,
        unknowns: &Unknowns,
        chosen: &[Reproduction],
    ) -> Self {
        let mut by_document: BTreeMap<String, Vec<Known>> = BTreeMap::new();
        for unknown in &unknowns.0 {
            let of = |one: &&Reproduction| unknown.experiments.contains(&one.experiment.name);
            let Some(one) = chosen.iter().find(of) else { continue };
            let tables = chosen.iter().filter(of).flat_map(|one| &one.form.tables);
            let nominal = one.experiment.variants.first().map(|variant| &variant.machine);
            let nominal = nominal.and_then(|machine| unknown.nominal(machine));
            let value = |number: &MachineNumber| unknown.value(*number).or(nominal);
            by_document.entry(unknown.document.clone()).or_default().push(Known {
                files: tables.map(|table| table.file).collect(),
                values: numbers.iter().map(value).collect(),
                unknown: unknown.clone(),
            });
        }
        Self { numbers, unknowns: by_document }
    }

    /// Whether there are others than the nominal one.
    pub(super) fn are_many(&self) -> bool {
        self.numbers.len() > 1
    }

    /// Their numbers, the nominal one first.
    pub(super) fn numbers(&self) -> &[MachineNumber] {
        &self.numbers
    }

    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    fn of(&self, document: &str) -> &[Known] {
        self.unknowns.get(document).map_or(&[], Vec::as_slice)
    }

    /// Where a claim holds.
    pub(super) fn place(&self, one: &Judgement) -> Where {
        let held: Vec<Option<bool>> =
            one.ours.iter().map(|judged| judged.verdict.holds()).collect();
        let known = self.of(one.claim.document());
        let files = one.claim.files();
        let concerns = |known: &Known| known.files.iter().any(|file| files.contains(file));
        let value =
            |known: &Known, machine: usize| known.values[machine].filter(|_| concerns(known));
        let values: Vec<Vec<Option<f64>>> = (0..self.numbers.len())
            .map(|machine| known.iter().map(|known| value(known, machine)).collect())
            .collect();
        Where {
            tally: Tally::of(held.iter().copied()),
            decision: decision(&values, &held),
            quantities: one.ours.iter().map(|judged| judged.quantity).collect(),
        }
    }

    /// A row for each claim that was judged.
    pub(super) fn claims_table(&self, claims: &[&Judgement]) -> Table {
        let columns = [
            ("claim", "claim"),
            ("strength", "strength"),
            ("holds on", "holds_on"),
            ("is", "standing"),
            ("decided by", "decided_by"),
            ("published", "published"),
            ("nominal", "nominal"),
            ("least", "least"),
            ("most", "most"),
        ];
        let mut table = Table::new("Where claims hold", &columns);
        for one in claims {
            let place = self.place(one);
            if one.standing(&place) == Standing::Prose {
                continue;
            }
            let number = |value: Option<f64>| value.map_or(Value::Missing, figure);
            let [least, most] = place.ends();
            table.push(vec![
                one.claim.id.as_str().into(),
                one.claim.strength.to_string().into(),
                place.tally.to_string().into(),
                one.standing(&place).to_string().into(),
                self.decided_by(one.claim.document(), &place).into(),
                number(one.published.quantity),
                number(place.quantities.first().copied().flatten()),
                number(least),
                number(most),
            ]);
        }
        table
    }

    /// What decides, in words; empty if nothing does or nothing has to.
    fn decided_by(&self, document: &str, place: &Where) -> String {
        let Some(decision) = &place.decision else {
            return match place.tally.standing() {
                Standing::Possible => "no one or two of what is unknown".to_owned(),
                _ => String::new(),
            };
        };
        let sides: Vec<String> =
            decision.sides.iter().map(|side| self.side(document, *side)).collect();
        format!("{}; right on {} of {}", sides.join(" and "), decision.right, decision.judged)
    }

    fn side(&self, document: &str, side: Side) -> String {
        let unknown = &self.of(document)[side.unknown].unknown;
        let sign = if side.is_above { ">" } else { "<" };
        let threshold = told_number(side.threshold);
        format!("{} {sign} {threshold} {}", unknown.name, unknown.range.unit)
    }

    /// A row for each machine of a document, a column for each unknown.
    pub(super) fn table(&self, document: &str) -> Table {
        let known = self.of(document);
        let mut columns = vec![Column { heading: "machine".to_owned(), key: "machine".to_owned() }];
        columns.extend(known.iter().map(|known| Column {
            heading: format!("{} ({})", known.unknown.name, known.unknown.range.unit),
            key: key_of(&known.unknown.name),
        }));
        let title = format!("Machines of {document}");
        let mut table = Table { title, columns, rows: Vec::new() };
        for (machine, number) in self.numbers.iter().enumerate() {
            let name = if machine == 0 { "1, nominal".to_owned() } else { number.to_string() };
            let mut row = vec![Value::Text(name)];
            row.extend(
                known.iter().map(|known| known.values[machine].map_or(Value::Missing, figure)),
            );
            table.push(row);
        }
        table
    }

    /// The ranges of a document's unknowns, with their sources.
    pub(super) fn ranges(&self, document: &str) -> Table {
        let columns = [
            ("unknown", "unknown"),
            ("what is not said", "missing"),
            ("from", "least"),
            ("to", "most"),
            ("of", "unit"),
            ("sources", "sources"),
        ];
        let mut table = Table::new("What is unknown", &columns);
        for Known { unknown, .. } in self.of(document) {
            let [least, most] = unknown.range.ends();
            let sources: Vec<String> = unknown
                .range
                .figures
                .iter()
                .map(|figure| format!("{}: {}", told_number(figure.value), figure.source))
                .collect();
            table.push(vec![
                unknown.name.as_str().into(),
                unknown.missing.as_str().into(),
                figure(least),
                figure(most),
                unknown.range.unit.as_str().into(),
                sources.join("; ").into(),
            ]);
        }
        table
    }

    /// The claim's quantity over the unknown that decides it, a dot for each machine.
    pub(super) fn scatter(&self, one: &Judgement) -> Option<Scatter> {
        let place = self.place(one);
        let side = *place.decision.as_ref()?.sides.first()?;
        let known = &self.of(one.claim.document())[side.unknown];
        let dots = self.numbers.iter().enumerate().filter_map(|(machine, number)| {
            Some(Dot {
                x: known.values[machine]?,
                y: place.quantities[machine]?,
                holds: one.ours[machine].verdict == Verdict::Held,
                name: format!("machine {number}"),
            })
        });
        Some(Scatter {
            title: one.claim.id.clone(),
            words: one.claim.quote.clone(),
            relation: one.claim.relation.clone(),
            x_name: known.unknown.name.clone(),
            x_unit: known.unknown.range.unit.clone(),
            dots: dots.collect(),
            published: one.published.quantity,
            threshold: side.threshold,
            told: format!(
                "Holds on {}: {}.",
                place.tally,
                self.decided_by(one.claim.document(), &place)
            ),
        })
    }

    /// What programs are told of a claim.
    pub(super) fn json_of(&self, one: &Judgement) -> Json {
        let place = self.place(one);
        let side = |side: &Side| {
            json!({
                "unknown": self.of(one.claim.document())[side.unknown].unknown.name,
                "threshold": side.threshold,
                "holds": if side.is_above { "above" } else { "below" },
            })
        };
        let decision = place.decision.as_ref().map(|decision| {
            json!({
                "sides": decision.sides.iter().map(side).collect::<Vec<_>>(),
                "right": decision.right,
            })
        });
        json!({
            "held": place.tally.held,
            "judged": place.tally.judged,
            "standing": one.standing(&place).to_string(),
            "decision": decision,
            "published": one.published.quantity,
            "quantities": place.quantities,
        })
    }

    /// What programs are told of the machines.
    pub(super) fn json(&self) -> Json {
        let known = |known: &Known| {
            json!({
                "name": known.unknown.name,
                "missing": known.unknown.missing,
                "unit": known.unknown.range.unit,
                "keys": known.unknown.range.keys.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "range": known.unknown.range.ends(),
                "values": known.values,
            })
        };
        let of = |(document, all): (&String, &Vec<Known>)| json!({ "document": document, "unknowns": all.iter().map(known).collect::<Vec<_>>() });
        json!({
            "number": self.numbers.len(),
            "documents": self.unknowns.iter().map(of).collect::<Vec<_>>(),
        })
    }
}

impl Where {
    /// The least and the greatest quantity.
    fn ends(&self) -> [Option<f64>; 2] {
        let known = || self.quantities.iter().copied().flatten();
        [known().reduce(f64::min), known().reduce(f64::max)]
    }
}

fn key_of(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
        .collect()
}

/// How a published value lies to what machines gave: inside their range, or by how far outside of it.
pub(super) fn lies(published: f64, least: f64, most: f64) -> String {
    let away = |end: f64| match end {
        0.0 => String::new(),
        end => format!("{} % ", text::significant(100.0 * (published / end - 1.0).abs())),
    };
    match published {
        value if value > most => format!("{}above", away(most)),
        value if value < least => format!("{}below", away(least)),
        _ => "inside".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_value_lies_inside_or_so_far_outside() {
        for (value, expected) in
            [(5.0, "inside"), (2.0, "inside"), (12.0, "50 % above"), (1.0, "50 % below")]
        {
            assert_eq!(lies(value, 2.0, 8.0), expected, "{value}");
        }
        assert_eq!(lies(3.0, 0.0, 0.0), "above", "of nothing there is no share");
    }
}
