//! What has to be true of costs, whatever the machine: else something disturbed the measurement.

use super::Measured;
use highorder_input::InputError;

/// A step, one that cannot be cheaper, how many of the former the latter is worth at least, and why.
type Relation = (&'static str, &'static str, f64, &'static str);

/// At least as much as so many: [`check`] refuses costs of which one of these is not true.
const RELATIONS: [Relation; 22] = [
    // A sixteenth of the 512 is ours: whole pages in a row are cleared faster, but by no machine so much faster.
    ("clear_base_page", "clear_huge_page", 32.0, "a huge page is 512 base pages"),
    ("copy_base_page", "copy_huge_page", 32.0, "a huge page is 512 base pages"),
    ("local_access", "remote_access", 1.0, "what another node has is further away"),
    ("cache_read", "local_access", 1.0, "a cache answers before memory does"),
    ("tlb_miss_huge", "tlb_miss_base", 1.0, "the walk to a base page has one level more"),
    ("tlb_flush_local", "tlb_flush_remote", 1.0, "the other CPU flushes too, and is told to"),
    ("tlb_flush_local", "tlb_flush_all_remote", 1.0, "the other CPU flushes too, and is told to"),
    ("pfn_scan", "local_access", 1.0, "an entry next in a row is fetched ahead"),
    ("pfn_scan", "list_op", 1.0, "a list leads to entries that nothing fetches ahead"),
    ("lock_pair", "system_call", 1.0, "entering the kernel orders memory as a lock does, and more"),
    ("lock_pair", "fault_entry", 1.0, "a fault takes locks"),
    ("lock_pair", "reclaim_page", 1.0, "reclaim locks the page"),
    ("lock_pair", "shrinkers", 1.0, "shrinkers are asked under a lock"),
    ("lock_pair", "swap_out", 1.0, "swapping out takes locks"),
    ("lock_pair", "swap_in", 1.0, "swapping in takes locks"),
    ("lock_pair", "move_page", 1.0, "both pages are locked"),
    ("lock_pair", "rmap_walk", 1.0, "the walk takes the mapping's locks"),
    ("lock_pair", "context_switch", 1.0, "a switch takes the run queue's lock"),
    ("lock_pair", "block_request", 1.0, "a request takes the queue's locks"),
    ("lock_pair", "cache_page", 1.0, "a page is put into its file under a lock"),
    ("lock_pair", "write_page", 1.0, "the page is locked while it is written to"),
    ("lock_pair", "metadata_change", 1.0, "the journal is told under a lock"),
];

/// Refuses costs that cannot be: of nothing, and below what a smaller step costs.
///
/// # Errors
/// All of them, each with what was measured and what was expected.
pub fn check(costs: &[Measured]) -> Result<(), InputError> {
    let mut problems = Vec::new();
    for Measured { name, ns, source } in costs {
        if *ns <= 0.0 {
            problems.push(format!("`{name}` came out as {ns} ns ({source}), expected more than 0"));
        }
    }
    let of = |name: &str| costs.iter().find(|cost| cost.name == name).map(|cost| cost.ns);
    for (smaller, larger, times, why) in RELATIONS {
        let (Some(least), Some(found)) = (of(smaller), of(larger)) else { continue };
        // What is 0 has been told already.
        if found > 0.0 && found < times * least {
            let most = if times > 1.0 { format!("{times} times ") } else { String::new() };
            problems.push(format!(
                "`{larger}` came out as {found} ns, expected at least {most}`{smaller}`, {least} ns: {why}"
            ));
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    problems.push(
        "Something disturbed the measurement: nothing was written. Try again when the machine is quiet."
            .to_owned(),
    );
    Err(InputError::other(problems.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use highorder_kernels::machine::{self, BUILT_IN};
    use highorder_sim::Machine;

    /// The costs of a machine file.
    fn costs(machine: &Machine) -> Vec<Measured> {
        let costs = machine.costs.by_name().into_iter().map(|(name, cost)| Measured {
            name,
            ns: cost.picoseconds() as f64 / 1000.0,
            source: cost.source.clone(),
        });
        costs.collect()
    }

    #[test]
    fn costs_of_every_machine_that_comes_with_the_program_can_be() {
        for (name, _) in BUILT_IN {
            check(&costs(&machine::load(name).unwrap())).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }

    #[test]
    fn every_relation_names_costs_that_there_are_and_is_enforced() {
        let good = costs(&machine::load("one-node-8g").unwrap());
        for (smaller, larger, times, why) in RELATIONS {
            let mut bad = good.clone();
            let least = good.iter().find(|cost| cost.name == smaller).unwrap().ns;
            bad.iter_mut().find(|cost| cost.name == larger).unwrap().ns = (times * least) * 0.99;
            let told = check(&bad).unwrap_err().to_string();
            let of = told.lines().find(|line| line.starts_with(&format!("`{larger}`")));
            assert!(of.is_some_and(|line| told.contains(why) && line.contains(larger)), "{told}");
            assert!(told.ends_with("Try again when the machine is quiet."), "{told}");
        }
    }

    #[test]
    fn a_cost_of_nothing_is_refused() {
        let good = costs(&machine::load("one-node-8g").unwrap());
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at].ns = 0.0;
            let told = check(&bad).unwrap_err().to_string();
            let begin = format!("`{}` came out as 0 ns (", bad[at].name);
            assert!(told.starts_with(&begin) && told.contains("expected more than 0"), "{told}");
        }
    }
}
