//! Names, parameters and what is said of wrong ones.

use highorder_workload::{Value, describe, find, names};
use std::collections::BTreeMap;

fn values<const N: usize>(values: [(&str, Value); N]) -> BTreeMap<String, Value> {
    values.map(|(key, value)| (key.to_owned(), value)).into()
}

#[test]
fn every_workload_can_be_had_with_its_defaults() {
    for name in names() {
        let workload = find(name, &BTreeMap::new()).unwrap();
        assert_eq!(workload.name(), *name);
    }
    let usemem = find("usemem", &BTreeMap::new()).unwrap().values();
    let expected = [
        ("advice", "none"),
        ("file", "0.16"),
        ("memory", "0.64"),
        ("passes", "30"),
        ("threads", "1"),
    ];
    assert_eq!(usemem, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
}

#[test]
fn names_are_sorted_and_unique() {
    assert!(names().windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn an_unknown_workload_is_told_with_those_there_are() {
    let error = find("kernbench", &BTreeMap::new()).unwrap_err();
    assert_eq!(error.key, None);
    let expected = format!("no workload `kernbench`, expected one of {}", names().join(", "));
    assert_eq!(error.message, expected);
}

#[test]
fn a_misspelt_workload_is_told_the_one_that_was_meant() {
    let error = find("usmem", &BTreeMap::new()).unwrap_err();
    assert_eq!(error.message, "no workload `usmem`, did you mean `usemem`?");
}

#[test]
fn every_parameter_says_what_it_is_and_its_default_is_a_value_that_it_takes() {
    for name in names() {
        let workload = describe(name).expect("a workload");
        assert!(!workload.about.is_empty(), "{name}");
        let defaults = find(name, &BTreeMap::new()).unwrap().values();
        let described: Vec<&str> = workload.parameters.iter().map(|p| p.name).collect();
        assert_eq!(described, defaults.keys().map(String::as_str).collect::<Vec<_>>(), "{name}");
        for parameter in &workload.parameters {
            let what = format!("{name}.{}", parameter.name);
            assert!(parameter.about.ends_with('.'), "{what}: {}", parameter.about);
            assert_eq!(parameter.unit.is_empty(), !parameter.words.is_empty(), "{what}");
            assert_eq!(parameter.default.trim_matches('"'), defaults[parameter.name], "{what}");
            let value = match parameter.default.strip_prefix('"') {
                Some(text) => Value::Text(text.trim_end_matches('"').to_owned()),
                None if parameter.default.contains('.') => {
                    Value::Float(parameter.default.parse().expect("a share"))
                }
                None => Value::Integer(parameter.default.parse().expect("a count")),
            };
            let given = values([(parameter.name, value)]);
            assert_eq!(find(name, &given).unwrap().values(), defaults, "{what}");
        }
    }
    assert_eq!(describe("kernbench"), None);
}

#[test]
fn words_are_told_where_a_parameter_takes_words() {
    let usemem = describe("usemem").expect("a workload");
    let advice = usemem.parameters.iter().find(|p| p.name == "advice").expect("a parameter");
    assert_eq!(advice.words, ["none", "huge", "no-huge"]);
    assert_eq!(advice.allowed, "\"none\" or \"huge\" or \"no-huge\"");
    let error = find("usemem", &values([("advice", Value::Text("hugh".into()))])).unwrap_err();
    assert_eq!(error.message, "`advice` is \"hugh\", did you mean `huge`?");
}

#[test]
fn wrong_parameters_are_told_with_what_was_found_and_expected() {
    let told = |name, key: &str, value| {
        let error = find(name, &values([(key, value)])).unwrap_err();
        assert_eq!(error.key.as_deref(), Some(key));
        error.message
    };
    assert_eq!(
        told("usemem", "speed", Value::Integer(3)),
        "`usemem` has no parameter `speed`, expected one of advice, file, memory, passes, threads"
    );
    assert_eq!(
        told("usemem", "pases", Value::Integer(3)),
        "`usemem` has no parameter `pases`, did you mean `passes`?"
    );
    assert_eq!(
        told("usemem", "passes", Value::Integer(-1)),
        "`passes` is -1, expected a whole number, 1..=1000000"
    );
    assert_eq!(
        told("usemem", "passes", Value::Float(3.0)),
        "`passes` is 3.0, expected a whole number, 1..=1000000"
    );
    assert_eq!(
        told("usemem", "memory", Value::Integer(80)),
        "`memory` is 80, expected a share of memory up to 16.0 such as 0.8 or 1.0, or a whole size \
         such as \"12 GiB\""
    );
    assert_eq!(
        told("usemem", "file", Value::Float(-0.1)),
        "`file` is -0.1, expected a share of memory up to 16.0 such as 0.16, a whole size such as \
         \"12 GiB\", or 0.0 for none"
    );
    assert_eq!(
        told("postmark", "size_min", Value::Text("6 MiB".to_owned())),
        "`size_min` is 6 MiB, expected at most `size_max`, 5 MiB"
    );
    assert_eq!(
        told("small-files", "block", Value::Text("128 KiB".to_owned())),
        "`block` is 128 KiB, expected at most `file_size`, 64 KiB"
    );
    assert_eq!(
        told("churn", "area_max", Value::Text("16MB".to_owned())),
        "`area_max` is \"16MB\", expected a whole size such as \"12 MiB\" (B, KiB, MiB, GiB or TiB)"
    );
    assert_eq!(
        told("mmap-demo", "advice", Value::Bool(true)),
        "`advice` is true, expected \"none\" or \"huge\" or \"no-huge\""
    );
    assert_eq!(
        told("churn", "area_min", Value::Text("17 MiB".to_owned())),
        "`area_min` is 17 MiB, expected at most `area_max`, 16 MiB"
    );
}

#[test]
fn threads_are_set_where_there_are_any() {
    let usemem = find("usemem", &BTreeMap::new()).unwrap();
    assert!(usemem.wants_threads());
    assert_eq!(usemem.with_threads(48).values()["threads"], "48");
    let demo = find("mmap-demo", &BTreeMap::new()).unwrap();
    assert!(!demo.wants_threads());
    assert_eq!(demo.clone().with_threads(48).values(), demo.values());
}

#[test]
fn a_scale_shrinks_sizes_and_leaves_shares_and_counts() {
    let given = values([
        ("live", Value::Float(0.75)),
        ("area_min", Value::Text("4 KiB".to_owned())),
        ("area_max", Value::Text("32 MiB".to_owned())),
    ]);
    let scaled = find("churn", &given).unwrap().scaled(1, 16).values();
    assert_eq!(scaled["live"], "0.75");
    assert_eq!(scaled["area_min"], "256 B");
    assert_eq!(scaled["area_max"], "2 MiB");
    assert_eq!(scaled["operations"], "10000");
    let given = values([("memory", Value::Text("12 GiB".to_owned()))]);
    assert_eq!(find("usemem", &given).unwrap().scaled(1, 4).values()["memory"], "3 GiB");
    let nothing = values([("memory", Value::Text("8 B".to_owned()))]);
    assert_eq!(find("usemem", &nothing).unwrap().scaled(1, 16).values()["memory"], "1 B");
}
