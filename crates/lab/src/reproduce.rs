//! The experiments that repeat published tables.

use crate::experiment::{BUILT_IN, Experiment};
use highorder_input::InputError;
use highorder_record::{PublishedForm, published};

/// An experiment and the published tables that it repeats.
#[derive(Clone, Debug)]
pub struct Reproduction {
    /// The experiment, with those of its variants that stand for published columns.
    pub experiment: Experiment,
    /// The tables.
    pub form: &'static PublishedForm,
}

impl Reproduction {
    /// The number of the document that printed the tables.
    #[must_use]
    pub fn document(&self) -> &'static str {
        self.form.name.split('_').next().unwrap_or_default()
    }

    /// Whether one of these words chooses it: the beginning of its tables' name, which is the document's number
    /// for all of a document, or the experiment's name.
    #[must_use]
    pub fn is_chosen(&self, words: &[String]) -> bool {
        words.iter().any(|word| self.form.name.starts_with(word) || self.experiment.name == *word)
    }
}

/// The experiments that come with the program and have variants that stand for published columns, in the order
/// of the tables' names.
///
/// # Errors
/// As [`Experiment::load`].
pub fn reproductions() -> Result<Vec<Reproduction>, InputError> {
    let mut found = Vec::new();
    for (name, _) in BUILT_IN {
        let mut experiment = Experiment::load(name)?;
        experiment.variants.retain(|variant| !variant.published.is_empty());
        let form = experiment.published.and_then(published::find);
        if let (Some(form), false) = (form, experiment.variants.is_empty()) {
            found.push(Reproduction { experiment, form });
        }
    }
    found.sort_by_key(|reproduction| reproduction.form.name);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use highorder_sim::machine::FileSystem;

    #[test]
    fn every_published_form_is_repeated_by_one_experiment_at_most() {
        let found = reproductions().unwrap();
        let forms: Vec<&str> = found.iter().map(|reproduction| reproduction.form.name).collect();
        assert!(forms.windows(2).all(|pair| pair[0] < pair[1]), "{forms:?}");
        assert!(forms.len() >= 9, "{forms:?}");
    }

    #[test]
    fn the_machines_of_004_have_xfs_for_their_files() {
        let found = reproductions().unwrap();
        let of_document: Vec<&Reproduction> =
            found.iter().filter(|reproduction| reproduction.document() == "004").collect();
        assert_eq!(of_document.len(), 2);
        for variant in of_document.iter().flat_map(|one| &one.experiment.variants) {
            let machine = &variant.machine;
            assert_eq!(machine.file_systems[0], FileSystem::Xfs, "{}", machine.name);
        }
    }

    #[test]
    fn words_choose_documents_tables_and_experiments() {
        let found = reproductions().unwrap();
        let chosen = |word: &str| -> Vec<&str> {
            let words = [word.to_owned()];
            let chosen = found.iter().filter(|reproduction| reproduction.is_chosen(&words));
            chosen.map(|reproduction| reproduction.form.name).collect()
        };
        assert_eq!(chosen("000"), ["000_stutter", "000_thpscale", "000_usemem"]);
        assert_eq!(chosen("002_mmap"), ["002_mmap_demo"]);
        assert_eq!(chosen("lumpy-fsmark"), ["003_fsmark"]);
        assert!(chosen("fs").is_empty());
    }
}
