//! Published rows that changed, and whether ours changed the same way.

use super::cells::{Cells, better};
use crate::published::PublishedForm;
use crate::stats::Better;

/// A row of a published table in a column other than the base, whose value is not that of the base.
#[derive(Clone, Debug, PartialEq)]
pub struct Direction {
    /// The table's heading.
    pub table: &'static str,
    /// The row: its statistic and metric.
    pub row: String,
    /// The column; the base is the table's first.
    pub column: &'static str,
    /// Which direction is the good one; in some rows neither is.
    pub better: Better,
    /// The published values, of the base and of the column.
    pub published: [f64; 2],
    /// Ours, if both were measured.
    pub ours: Option<[f64; 2]>,
}

impl Direction {
    /// Whether ours changed the same way; none if it was not measured. A value of ours that stayed as it was did
    /// not.
    #[must_use]
    pub fn is_same(&self) -> Option<bool> {
        let [base, new] = self.ours?;
        Some((new - base) * (self.published[1] - self.published[0]) > 0.0)
    }
}

/// All rows of a form that changed in a column. Listings of samples have no rows to compare.
#[must_use]
pub fn directions(form: &PublishedForm, published: &Cells, ours: &Cells) -> Vec<Direction> {
    let mut found = Vec::new();
    for table in &form.tables {
        let Some((base, others)) = table.columns.split_first() else { continue };
        for row in table.rows.iter().filter(|row| row.cells.stat != "sample") {
            for column in others {
                let both = |cells: &Cells| {
                    let of = |column| cells.of_row(table, row, column);
                    Some([of(base)?, of(column)?])
                };
                let Some(values) = both(published).filter(|[base, new]| base != new) else {
                    continue;
                };
                found.push(Direction {
                    table: table.title,
                    row: [row.statistic, &row.metric].join(" ").trim().to_owned(),
                    column,
                    better: better(table, row),
                    published: values,
                    ours: both(ours),
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published;

    #[test]
    fn the_published_cells_go_their_own_way() {
        let cells = Cells::published();
        let (mut nr, mut nr_neutral) = (0, 0);
        for name in published::names() {
            for direction in directions(published::find(name).unwrap(), &cells, &cells) {
                assert_eq!(direction.is_same(), Some(true), "{direction:?}");
                nr += 1;
                nr_neutral += usize::from(direction.better == Better::Neutral);
            }
        }
        assert_eq!((nr, nr_neutral), (439, 134), "rows that changed; those where no way is better");
    }

    #[test]
    fn another_way_none_and_not_measured_are_told_apart() {
        let change = |ours| Direction {
            table: "",
            row: String::new(),
            column: "",
            better: Better::Lower,
            published: [10.0, 5.0],
            ours,
        };
        assert_eq!(change(Some([100.0, 99.0])).is_same(), Some(true));
        assert_eq!(change(Some([100.0, 101.0])).is_same(), Some(false));
        assert_eq!(change(Some([100.0, 100.0])).is_same(), Some(false));
        assert_eq!(change(None).is_same(), None);
    }
}
