//! `list`, `show`, what is said of misspelt names, and what shells complete.

use crate::common::{completed, highorder, printed, refused, text};
use std::path::Path;
use std::process::Command;

/// What a program gets.
fn json(arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&printed(arguments)).expect("JSON")
}

/// Whether a text has these lines, in any order.
#[track_caller]
fn has_lines(text: &str, expected: &[&str]) {
    for line in expected {
        assert!(text.lines().any(|found| found == *line), "`{line}` is not in {text}");
    }
}

fn written(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a file");
    path.to_str().expect("a path in UTF-8").to_owned()
}

#[test]
fn list_counts_and_names_everything() {
    has_lines(
        &printed(&["list"]),
        &["28 experiments", "15 workloads", "29 knobs", "More", "  usemem-small"],
    );
}

#[test]
fn every_kind_is_listed_with_a_line_for_each_name() {
    let all = json(&["list", "--format", "json"]);
    for (kind, least) in [
        ("experiments", 21),
        ("kernels", 17),
        ("machines", 10),
        ("workloads", 14),
        ("knobs", 20),
        ("tables", 10),
        ("claims", 200),
    ] {
        let entries = all[kind].as_array().unwrap_or_else(|| panic!("no {kind}"));
        assert!(entries.len() >= least, "{kind}: {}", entries.len());
        let text = printed(&["list", kind]);
        let one = json(&["list", kind, "--format", "json"]);
        assert_eq!(one[kind], all[kind]);
        for entry in entries {
            let name = entry["name"].as_str().expect("a name");
            let about = entry["about"].as_str().expect("a line about it");
            let first = about.split(' ').next().expect("a word");
            let line = text.lines().find(|line| line.split(' ').next() == Some(name));
            let line = line.unwrap_or_else(|| panic!("{kind} does not list {name}"));
            let next = text.lines().skip_while(|other| *other != line).nth(1).unwrap_or_default();
            assert!(line.contains(first) || next.contains(first), "{name}: {line}");
        }
    }
    assert_eq!(printed(&["list", "kernel"]), printed(&["list", "kernels"]), "one or several");
}

#[test]
fn everything_listed_can_be_shown() {
    let all = json(&["list", "--format", "json"]);
    for kind in ["experiments", "kernels", "machines", "workloads", "knobs", "tables"] {
        for entry in all[kind].as_array().expect("entries") {
            let name = entry["name"].as_str().expect("a name");
            let shown = printed(&["show", name, "--kind", kind]);
            assert!(shown.starts_with(&format!("{name}: ")), "{shown}");
            let shown = json(&["show", name, "--kind", kind, "--format", "json"]);
            assert_eq!(shown[0]["name"], name);
        }
    }
    for claim in all["claims"].as_array().expect("entries").iter().step_by(23) {
        let shown = json(&["show", claim["name"].as_str().expect("a name"), "--format", "json"]);
        assert_eq!(shown[0]["quote"], claim["about"]);
    }
}

#[test]
fn a_workload_tells_its_parameters_with_what_they_take() {
    has_lines(
        &printed(&["show", "usemem", "--kind", "workload"]),
        &[
            "advice = \"none\"",
            "    takes  \"none\" or \"huge\" or \"no-huge\"",
            "memory = 0.64",
            "    takes  a share of memory up to 16.0 such as 0.8 or 1.0, or a whole size such as \"12 GiB\"",
            "    unit   share of memory, or bytes",
            "    unit   threads",
            "Experiments with it",
            "  passes = 30",
        ],
    );
}

#[test]
fn an_experiment_tells_what_it_compares_and_how_it_is_run() {
    let shown = printed(&["show", "overcommit"]);
    has_lines(
        &shown,
        &[
            "machine   two-node-64g",
            "runs      6: 2 variants x 3 steps of threads",
            "  advice = none, file = 0.0, memory = 1.1, passes = 3",
            "  transparent_hugepage/enabled = never",
            "  swap-1g   linux-4.4; 1024 MiB of swap",
            "  swap-16g  linux-4.4; 16384 MiB of swap",
            "  highorder run overcommit --scale 1/16  about 15 seconds",
        ],
    );
}

#[test]
fn a_machine_is_drawn() {
    let shown = printed(&["show", "two-node-64g"]);
    let (shape, costs) = shown.split_once("What work costs").expect("costs");
    has_lines(
        shape,
        &[
            "64 GiB in 2 nodes, 48 CPUs",
            "node 0: 32 GiB, CPUs 0 to 23",
            "   D  DMA     15.6 MiB present  15 MiB managed by the page allocator",
            "  node 0   10   21",
            "  1 GiB on sda",
        ],
    );
    assert!(shape.contains("  [D33333NNNN"), "{shape}");
    assert!(costs.contains("  remote_access: 194 ns\n"), "{costs}");
    assert!(costs.contains("source:  Intel, Memory Latencies on Xeon E5-4600"), "{costs}");
}

#[test]
fn a_knob_tells_what_it_is_on_each_kernel() {
    let shown = printed(&["show", "vm.watermark_scale_factor"]);
    has_lines(
        &shown,
        &[
            "takes  a whole number, 1..=3000",
            "since  Linux 4.6",
            "Kernels without it",
            "  knobs = { \"vm.watermark_scale_factor\" = 10 }",
        ],
    );
}

#[test]
fn a_claim_tells_its_level_and_which_experiment_runs_it() {
    has_lines(
        &printed(&["show", "000-usemem-elapsed-1t"]),
        &[
            "level      must: a reproduction has to show it",
            "holds if   reduction >= 0.20",
            "run by     the experiment thp-defrag-usemem: highorder reproduce --only 000_usemem",
        ],
    );
    let table = printed(&["show", "000_usemem_times"]);
    assert!(table.contains("highorder reproduce --only 000_usemem"), "{table}");
    assert!(table.contains("Amean Elapsd-1   seconds          185.84         105.51"), "{table}");
}

#[test]
fn a_kernel_tells_every_value_with_its_source_and_the_file_that_sets_it() {
    let shown = printed(&["show", "linux-4.4-nodefrag"]);
    assert!(
        shown.contains("based on  linux-4.4-kcompactd, which is based on linux-4.4, which"),
        "{shown}"
    );
    for line in [
        "  high_order             \"neither\"        mm/slub.c: allocate_slab, alloc_gfp & ~__GFP_RECLAIM; 444eb2a449ef\n",
        "PAGEVEC_SIZE [linux-4.4]\n",
        "[linux-6.12]\n",
    ] {
        assert!(shown.contains(line), "{line} is not in {shown}");
    }
    let kernel = &json(&["show", "linux-4.4-nodefrag", "--format", "json"])[0];
    let values = kernel["values"].as_array().expect("values");
    assert!(values.len() > 150);
    for value in values {
        assert!(value["source"].as_str().is_some_and(|source| !source.is_empty()), "{value}");
    }
    let ratio = values.iter().find(|value| value["key"] == "watermark.lowmem_reserve_ratio");
    assert_eq!(ratio.expect("a value")["value"], serde_json::json!([256, 256, 32]));
}

#[test]
fn two_kernels_are_told_apart_by_what_differs_alone() {
    let held = printed(&["show", "linux-4.14-direct-held", "--against", "linux-4.14"]);
    assert!(held.starts_with("linux-4.14-direct-held against linux-4.14\n1 of "), "{held}");
    assert!(
        held.contains("\n\ncompaction.free_pages\n  linux-4.14-direct-held  \"direct-held\""),
        "{held}"
    );
    let far = printed(&["show", "linux-4.4", "--against", "linux-6.12"]);
    assert!(far.contains("\nfreelist.list_type\n"), "{far}");
    assert!(!far.contains("freelist.max_order"), "both have order 10: {far}");
    let same = printed(&["show", "linux-6.1", "--against", "linux-6.1"]);
    assert_eq!(same, "linux-6.1 against linux-6.1\nno value differs\n");
    let refused = refused(&["show", "usemem", "--against", "linux-6.1"]);
    assert!(
        refused.contains("--against of the experiment `usemem`, expected a kernel"),
        "{refused}"
    );
}

#[test]
fn a_name_of_several_kinds_is_shown_for_each() {
    let both = printed(&["show", "usemem"]);
    assert!(both.starts_with("usemem: an experiment\n"), "{both}");
    assert!(both.contains("\nusemem: a workload\n"), "{both}");
    let one = printed(&["show", "usemem", "--kind", "experiment"]);
    assert!(!one.contains("usemem: a workload"), "{one}");
}

#[test]
fn files_of_ones_own_are_shown_as_what_they_describe() {
    let folder = tempfile::tempdir().expect("a folder");
    let kernel = written(
        folder.path(),
        "mine.toml",
        "based_on = \"linux-6.12\"\n\n[watermark]\nboost_factor = 0 # to see what it does\n",
    );
    let shown = printed(&["show", &kernel]);
    assert!(shown.starts_with("mine: a kernel\n"), "{shown}");
    let boost = shown.lines().find(|line| line.trim_start().starts_with("boost_factor "));
    let words: Vec<&str> = boost.expect("the value is shown").split_whitespace().collect();
    assert_eq!(words, ["boost_factor", "0", "to", "see", "what", "it", "does"], "{shown}");
    let against = printed(&["show", &kernel, "--against", "linux-6.12"]);
    assert!(against.contains("1 of "), "{against}");
    assert!(against.contains("watermark.boost_factor"), "{against}");
    let built_in = include_str!("../../../../machines/one-node-8g.toml");
    let machine = written(folder.path(), "box.toml", built_in);
    assert!(printed(&["show", &machine]).starts_with("box: a machine\n"));
    let emulated = "based_on = \"one-node-8g\"\n[host]\nwork_percent = [100, 150]\n\
                    flush_wait_ns = [0, 250_000, 1_000_000]\naccess_wait_ns = [1_500_000]\nsource = \"x\"\n";
    let guest = written(folder.path(), "guest.toml", emulated);
    let told = printed(&["show", &guest]).split_whitespace().collect::<Vec<_>>().join(" ");
    for row in [
        "CPUs with work 1 2 3 ",
        "work takes, of its cost 100 % 150 % 150 % ",
        "telling others to flush takes longer by 0 ms 0.25 ms 1 ms ",
        "and a disk's access by 1.5 ms 1.5 ms 1.5 ms source: x",
    ] {
        assert!(told.contains(row), "{told}");
    }
    for (good, bad, said) in [
        ("150", "99", "`work_percent` is 99, expected 100..=10000 %"),
        ("[1_500_000]", "[]", "`access_wait_ns` has 0 values, expected 1..=8"),
        ("250_000", "1_000_000_000", "`flush_wait_ns` is 1000000000, expected 0..=999999999 ns"),
    ] {
        let wrong = written(folder.path(), "wrong.toml", &emulated.replace(good, bad));
        let refusal = refused(&["show", &wrong]);
        assert!(refusal.contains(said) && refusal.contains("wrong.toml:"), "{refusal}");
    }
    let experiment = written(
        folder.path(),
        "try.toml",
        "description = \"tried\"\nmachine = \"box.toml\"\n[workload]\nname = \"memhog\"\n\
         [[variant]]\nkernel = \"mine.toml\"\n",
    );
    let shown = printed(&["show", &experiment]);
    assert!(shown.starts_with("try: an experiment\ntried\n"), "{shown}");
    assert!(shown.contains("machine   box\n"), "{shown}");
    assert!(shown.contains("--scale 1/16"), "{shown}");
    let refused_kind = refused(&["show", &machine, "--kind", "kernel"]);
    assert!(refused_kind.contains("is a machine, expected a kernel"), "{refused_kind}");
    let nothing = written(folder.path(), "none.toml", "colour = \"red\"\n");
    assert!(refused(&["show", &nothing]).contains("none.toml: expected an experiment"));
    let broken = written(folder.path(), "broken.toml", "[freelist]\nmerge = \n");
    assert!(refused(&["show", &broken]).contains("broken.toml:2: "));
}

#[test]
fn a_near_miss_is_answered_with_the_name_that_was_meant() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |text: &str| written(folder.path(), "mine.toml", text);
    assert!(
        refused(&["run", "usememm"]).contains("no experiment `usememm`, did you mean `usemem`?")
    );
    assert!(refused(&["show", "two-nod-64g"]).contains("did you mean `two-node-64g`?"));
    assert!(refused(&["show", "stuter", "--kind", "workload"]).contains("did you mean `stutter`?"));
    assert!(refused(&["list", "kernals"]).contains("'kernels'"));
    let recording = "tests/data/recordings/612-rec-compact";
    let said = refused(&["replay", recording, "--vs", "linux-6.13"]);
    assert!(
        said.contains("no kernel `linux-6.13`, did you mean `linux-6.1` or `linux-6.12`?"),
        "{said}"
    );
    let head = "description = \"d\"\nmachine = \"one-node-8g\"\n[workload]\nname = \"usemem\"\n";
    let variant = "[[variant]]\nkernel = \"linux-4.4\"\n";
    for (text, expected) in [
        (
            head.replace("machine =", "machin =") + variant,
            ":2: unknown field `machin`, did you mean `machine`?",
        ),
        (
            head.replace("8g", "8gb") + variant,
            ":2: `machine` is `one-node-8gb`, did you mean `one-node-8g`?",
        ),
        (
            head.replace("usemem", "usmem") + variant,
            ":4: no workload `usmem`, did you mean `usemem`?",
        ),
        (
            format!("{head}pases = 3\n{variant}"),
            ":5: `usemem` has no parameter `pases`, did you mean `passes`?",
        ),
        (
            format!("{head}advice = \"hugh\"\n{variant}"),
            ":5: `advice` is \"hugh\", did you mean `huge`?",
        ),
        (
            format!("{head}{variant}knobs = {{ \"vm.swapiness\" = 1 }}\n"),
            ":7: unknown knob `vm.swapiness`, did you mean `vm.swappiness`?",
        ),
        (
            format!("published = \"003_fsmrk\"\n{head}{variant}"),
            ":1: `published` is `003_fsmrk`, did you mean `003_fsmark`?",
        ),
    ] {
        let said = refused(&["run", &file(&text)]);
        assert!(said.contains(expected), "{expected} is not in {said}");
    }
}

#[test]
fn a_variant_that_was_meant_is_named_in_place_of_all_there_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("store");
    let store = text(&store);
    printed(&["run", "mmap-demo", "--scale", "1/64", "--store", store]);
    let there = printed(&["compare", "mmap-demo:*", "--store", store, "--format", "json"]);
    let there: serde_json::Value = serde_json::from_str(&there).expect("JSON");
    let name = there["variants"][0]["label"].as_str();
    let name = name.unwrap_or_else(|| panic!("no variant in {there}"));
    let misspelt = format!("{name}x");
    let said = refused(&["compare", &misspelt, "--store", store]);
    assert!(said.contains(&format!("did you mean `{name}`?")), "{said}");
}

#[test]
fn shells_complete_names_and_paths() {
    let folder = tempfile::tempdir().expect("a folder");
    for file in ["mine.toml", "usemem-mine.toml"] {
        std::fs::write(folder.path().join(file), "").expect("a file");
    }
    for shell in ["bash", "zsh", "fish"] {
        let offered = |words: &[&str]| completed(folder.path(), shell, words);
        let has = |words: &[&str], name: &str| {
            let offered = offered(words);
            assert!(offered.iter().any(|one| one == name), "{shell}: {words:?}: {offered:?}");
        };
        has(&["run", "usemem-a"], "usemem-anon");
        has(&["run", "usemem-"], "usemem-mine.toml");
        has(&["run", "./mi"], "./mine.toml");
        has(&["show", "linux-6.12-"], "linux-6.12-mixing");
        has(&["show", "vm.sw"], "vm.swappiness");
        has(&["show", "linux-4.4", "--against", "linux-5"], "linux-5.4");
        has(&["list", "ma"], "machines");
        has(&["calibrate", "--machine", "two"], "two-node-64g");
        assert!(offered(&["run", "usemem-a"]).iter().all(|one| one.starts_with("usemem-a")));
    }
}

#[test]
fn compare_completes_what_the_store_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = highorder(&["run", "mmap-demo", "--scale", "1/64"]);
    run.current_dir(folder.path()).assert().success();
    let offered = completed(folder.path(), "bash", &["compare", "mmap-demo"]);
    assert!(offered.iter().any(|one| one.starts_with("mmap-demo")), "{offered:?}");
}

#[test]
fn a_shell_that_reads_the_script_completes_an_experiment() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = written(folder.path(), "completions.bash", &printed(&["completions", "bash"]));
    let binary = Path::new(env!("CARGO_BIN_EXE_highorder")).parent().expect("a folder");
    let asks = format!(
        "PATH={}:$PATH; source {script}; COMP_WORDS=(highorder run usemem-an); COMP_CWORD=2; \
         COMP_TYPE=9; _clap_complete_highorder highorder usemem-an run; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        text(binary)
    );
    match Command::new("bash").args(["-c", &asks]).output() {
        Ok(output) => {
            let offered = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(
                offered.trim(),
                "usemem-anon",
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Err(error) => eprintln!("SKIPPED: bash: {error}"),
    }
}
