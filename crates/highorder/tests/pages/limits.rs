//! `docs/limits.md`: its table is the one of the code.

use crate::page::{self, table};
use highorder_files::limits;

#[test]
fn the_limits_page_says_what_the_code_says() {
    let rows = limits::all().into_iter().map(|(of, most, why)| vec![of.to_owned(), most, why]);
    let rows: Vec<Vec<String>> = rows.collect();
    page::check("docs/limits.md", &[("limits", table(&["what", "at most", "why"], &rows))]);
}
