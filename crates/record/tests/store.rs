//! The store: whole records or none, the same bytes for the same record, errors that say where.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::record;
use highorder_record::store::read_record;
use highorder_record::{Inputs, Put, Record, Store, StoreError};
use rand_core::Rng;
use rand_pcg::Pcg64;
use tempfile::TempDir;

fn store() -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("store")).unwrap();
    (folder, store)
}

/// All files below a folder, by name.
fn bytes_below(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for item in fs::read_dir(next).unwrap() {
            let path = item.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                files.insert(name, fs::read(path).unwrap());
            }
        }
    }
    files
}

#[test]
fn what_is_put_is_got_back_whole() {
    let (_folder, store) = store();
    let full = record("linux-4.4", 48, 7);
    let empty = Record::new(Inputs::default());
    for record in [&full, &empty] {
        assert!(!store.has(&record.inputs));
        assert_eq!(store.get(record.identity()).unwrap(), None);
        assert_eq!(store.put(record).unwrap(), Put::Added);
        assert!(store.has(&record.inputs));
        assert_eq!(store.get(record.identity()).unwrap().as_ref(), Some(record));
    }
    assert_eq!(Store::open(store.folder()).unwrap().list().unwrap().len(), 2);
}

#[test]
fn the_same_records_give_the_same_bytes_in_whatever_order_they_come() {
    let records: Vec<Record> = (0..6).map(|seed| record("linux-4.4", 4, seed)).collect();
    let ((_one, first), (_two, second)) = (store(), store());
    for record in &records {
        first.put(record).unwrap();
    }
    std::thread::sleep(Duration::from_millis(1100));
    for record in records.iter().rev() {
        second.put(record).unwrap();
    }
    let bytes = bytes_below(first.folder());
    assert_eq!(bytes.len(), 1 + 5 * records.len());
    assert!(bytes == bytes_below(second.folder()), "two stores of the same records differ");
}

#[test]
fn a_record_is_written_once() {
    let (_folder, store) = store();
    let mut record = record("linux-4.4", 48, 7);
    store.put(&record).unwrap();
    let before = bytes_below(store.folder());
    assert_eq!(store.put(&record).unwrap(), Put::AlreadyThere);
    record.metrics[0].samples[0] += 1.0;
    let error = store.put(&record).unwrap_err();
    assert!(matches!(error, StoreError::Differs { .. }), "{error}");
    assert!(error.to_string().contains("another outcome of the same inputs"), "{error}");
    record.metrics[0].samples[0] -= 1.0;
    assert_eq!(store.put(&record).unwrap(), Put::AlreadyThere);
    for picture in ["memory-held", "memory-end"] {
        let mut other = record.clone();
        other.pictures.insert(picture.to_owned(), "<svg/>".to_owned());
        assert_ne!(other, record);
        let error = store.put(&other).unwrap_err();
        assert!(matches!(error, StoreError::Differs { .. }), "{error}");
    }
    assert!(before == bytes_below(store.folder()));
}

#[test]
fn records_are_listed_by_name_and_found_by_pattern() {
    let (_folder, store) = store();
    for (kernel, threads) in [("linux-4.4", 48), ("linux-4.4", 1), ("linux-6.12", 1)] {
        store.put(&record(kernel, threads, 7)).unwrap();
    }
    fs::create_dir(store.folder().join("not-a-record")).unwrap();
    fs::write(store.folder().join("README"), "").unwrap();
    let names = |entries: Vec<highorder_record::Entry>| -> Vec<String> {
        entries.iter().map(|e| e.name.rsplit_once('-').unwrap().0.to_owned()).collect()
    };
    assert_eq!(
        names(store.list().unwrap()),
        [
            "usemem-anon.linux-4.4.threads-1.seed-7",
            "usemem-anon.linux-4.4.threads-48.seed-7",
            "usemem-anon.linux-6.12.threads-1.seed-7"
        ]
    );
    assert_eq!(store.find("*linux-4.4*").unwrap().len(), 2);
    assert_eq!(store.find("*threads-?.*").unwrap().len(), 2);
    assert_eq!(store.find("linux-4.4").unwrap().len(), 0);
    let wanted = record("linux-6.12", 1, 7);
    let hash = wanted.identity().to_string();
    let found = store.find(&hash[..8]).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(store.read(&found[0]).unwrap(), wanted);
    assert!(store.remove(wanted.identity()).unwrap());
    assert!(!store.remove(wanted.identity()).unwrap());
    assert_eq!(store.list().unwrap().len(), 2);
}

#[test]
fn a_record_with_problems_is_refused() {
    let (_folder, store) = store();
    let mut record = record("linux-4.4", 48, 7);
    record.metrics[1].samples = vec![f64::NAN];
    let error = store.put(&record).unwrap_err();
    assert!(
        error.to_string().ends_with("has a sample of NaN, expected a finite number"),
        "{error}"
    );
    record.metrics[1].samples.clear();
    for name in ["", "../memory", "Memory", "memory.held"] {
        record.pictures = [(name.to_owned(), "<svg/>".to_owned())].into();
        let error = store.put(&record).unwrap_err().to_string();
        assert!(error.contains(&format!("picture `{name}`, expected a name of ")), "{error}");
    }
    assert_eq!(store.list().unwrap(), []);
}

#[test]
fn a_record_names_only_files_that_it_can_have() {
    let (_folder, store) = store();
    let record = record("linux-4.4", 48, 7);
    store.put(&record).unwrap();
    let (folder, document) = only_record(&store);
    let (path, text) = (folder.join("record.json"), unchecked(&document));
    for name in ["../memory-held.svg", "/etc/passwd", "other.parquet", ".svg"] {
        fs::write(&path, text.replace("memory-held.svg", name)).unwrap();
        let error = store.get(record.identity()).unwrap_err().to_string();
        assert!(error.contains("record.json: checksum of `"), "{error}");
    }
}

#[test]
fn damage_is_told_with_its_file() {
    let (_folder, store) = store();
    let record = record("linux-4.4", 48, 7);
    store.put(&record).unwrap();
    let folder = store.list().unwrap()[0].path.clone();
    for (file, expected) in [
        ("samples.parquet", "with checksum"),
        ("timeline.parquet", "with checksum"),
        ("histograms.parquet", "with checksum"),
        ("memory-held.svg", "with checksum"),
        ("record.json", "expected a highorder-record 2"),
    ] {
        let path = folder.join(file);
        let whole = fs::read(&path).unwrap();
        for damaged in [&whole[..whole.len() / 2], &[&whole[..8], b"!", &whole[9..]].concat()] {
            fs::write(&path, damaged).unwrap();
            let error = store.get(record.identity()).unwrap_err().to_string();
            assert!(error.contains(file) && error.contains(expected), "{error}");
        }
        fs::remove_file(&path).unwrap();
        let error = store.get(record.identity()).unwrap_err().to_string();
        assert!(error.contains(file), "{error}");
        fs::write(&path, whole).unwrap();
    }
    let path = folder.join("record.json");
    let document = fs::read(&path).unwrap();
    fs::write(&path, unchecked(&document).replace("\"seed\":7", "\"seed\":8")).unwrap();
    let error = store.get(record.identity()).unwrap_err().to_string();
    assert!(error.ends_with("expected the identity of its inputs"), "{error}");
    fs::write(&path, document).unwrap();
    assert_eq!(store.get(record.identity()).unwrap(), Some(record));
}

/// How many records a helper writes.
const HELPER_RECORDS: u64 = 150;

const HELPER_STORE: &str = "HIGHORDER_RECORD_TEST_STORE";

fn helper_record(number: u64) -> Record {
    record("linux-4.4", 1 + (number % 8) as u32, number)
}

/// Not a test by itself: the process that other tests start, and kill.
#[test]
#[ignore = "a helper of the tests that kill it"]
fn helper_that_writes_records() {
    let Some(folder) = std::env::var_os(HELPER_STORE) else { return };
    let store = Store::open(folder).unwrap();
    for number in 0..HELPER_RECORDS {
        store.put(&helper_record(number)).unwrap();
    }
}

fn start_helper(store: &Store) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "helper_that_writes_records", "--ignored"])
        .env(HELPER_STORE, store.folder())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn parts_of(store: &Store) -> usize {
    let names = fs::read_dir(store.folder()).unwrap().map(|item| item.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with(".part-")).count()
}

#[test]
fn a_writer_killed_at_any_moment_leaves_whole_records_only() {
    let (_folder, store) = store();
    let mut rng = Pcg64::new(20, 9);
    let (mut parts, mut records) = (0, 0);
    for _ in 0..20 {
        let mut helper = start_helper(&store);
        std::thread::sleep(Duration::from_micros(5_000 + rng.next_u64() % 120_000));
        helper.kill().unwrap();
        helper.wait().unwrap();
        parts += parts_of(&store);
        // What is listed before anybody has cleaned up is whole already.
        for entry in store.list().unwrap() {
            let read = store.read(&entry).unwrap();
            assert_eq!(read, helper_record(read.inputs.seed));
        }
        let store = Store::open(store.folder()).unwrap();
        assert_eq!(parts_of(&store), 0);
        let now = store.list().unwrap().len();
        assert!(now >= records, "records are lost");
        records = now;
    }
    println!("20 writers killed: {records} records are whole, {parts} parts were left and removed");
    assert!(records > 0, "the helper never wrote");
    assert!(start_helper(&store).wait().unwrap().success());
    assert_eq!(store.list().unwrap().len() as u64, HELPER_RECORDS);
}

#[test]
fn processes_that_write_the_same_records_at_once_agree() {
    let (_folder, store) = store();
    let mut helpers: Vec<_> = (0..3).map(|_| start_helper(&store)).collect();
    // Opening a store must not take parts that are being written.
    while helpers.iter_mut().any(|helper| helper.try_wait().unwrap().is_none()) {
        let store = Store::open(store.folder()).unwrap();
        for entry in store.list().unwrap().iter().rev().take(3) {
            store.read(entry).unwrap();
        }
    }
    for mut helper in helpers {
        assert!(helper.wait().unwrap().success(), "a writer failed");
    }
    assert_eq!(store.list().unwrap().len() as u64, HELPER_RECORDS);
    assert_eq!(parts_of(&store), 0);
    let (_other, alone) = self::store();
    assert!(start_helper(&alone).wait().unwrap().success());
    assert!(bytes_below(alone.folder()) == bytes_below(store.folder()));
}

#[test]
fn an_experiment_in_another_order_changes_the_column_of_a_record_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let mut record = common::record("linux-4.4", 4, 7);
    record.column = Some(1);
    let identity = record.identity();
    store.put(&record).unwrap();
    assert!(!store.set_column(&record.inputs, 1).unwrap(), "it stands there already");
    assert!(store.set_column(&record.inputs, 0).unwrap());
    let read = store.get(identity).unwrap().unwrap();
    record.column = Some(0);
    assert_eq!(read, record);
    // As if it had been written so at once.
    assert_eq!(store.put(&record).unwrap(), Put::AlreadyThere);
    let parts = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(parts.into_iter().all(|name| !name.to_string_lossy().starts_with(".part-")));
    // Of a run that is not there, nothing is.
    let other = common::record("linux-4.4", 4, 8);
    assert!(!store.set_column(&other.inputs, 3).unwrap());
    assert_eq!(store.list().unwrap().len(), 1);
}

#[test]
fn a_record_of_before_columns_were_kept_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let record = common::record("linux-4.4", 4, 7);
    store.put(&record).unwrap();
    let entry = &store.list().unwrap()[0];
    let text = std::fs::read_to_string(entry.path.join("record.json")).unwrap();
    assert!(!text.contains("\"column\": null"), "the key is left out");
    assert_eq!(store.read(entry).unwrap().column, None);
    assert!(store.set_column(&record.inputs, 2).unwrap());
    assert_eq!(store.read(entry).unwrap().column, Some(2));
}

/// The one record of a store with one record: its folder, and the text of its document.
fn only_record(store: &Store) -> (std::path::PathBuf, Vec<u8>) {
    let folder = store.list().unwrap().remove(0).path;
    let document = fs::read(folder.join("record.json")).unwrap();
    (folder, document)
}

/// A document as records had it before it had a checksum of its own.
fn unchecked(document: &[u8]) -> String {
    let mut value: serde_json::Value = serde_json::from_slice(document).unwrap();
    value["format"] = "highorder-record 1".into();
    value.as_object_mut().unwrap().remove("checksum");
    value.to_string()
}

#[test]
fn every_flipped_bit_of_a_document_is_refused() {
    let (_folder, store) = store();
    store.put(&record("linux-4.4", 4, 7)).unwrap();
    let (folder, document) = only_record(&store);
    let path = folder.join("record.json");
    for at in 0..document.len() {
        let mut altered = document.clone();
        altered[at] ^= 1 << (at % 8);
        fs::write(&path, &altered).unwrap();
        assert!(read_record(&folder).is_err(), "bit {} of byte {at}", at % 8);
    }
    fs::write(&path, &document).unwrap();
    read_record(&folder).unwrap();
}

#[test]
fn an_edited_number_of_a_document_is_refused() {
    let (_folder, store) = store();
    store.put(&record("linux-4.4", 4, 7)).unwrap();
    let (folder, document) = only_record(&store);
    let edited =
        String::from_utf8(document).unwrap().replacen("\"pgfault\": 7", "\"pgfault\": 8", 1);
    fs::write(folder.join("record.json"), edited).unwrap();
    let told = read_record(&folder).unwrap_err().to_string();
    assert!(told.contains("it was damaged or edited"), "{told}");
}

#[test]
fn a_document_of_before_it_had_a_checksum_is_read_and_one_that_lost_it_is_not() {
    let (_folder, store) = store();
    store.put(&record("linux-4.4", 4, 7)).unwrap();
    let (folder, document) = only_record(&store);
    let (path, old) = (folder.join("record.json"), unchecked(&document));
    fs::write(&path, old.replace("highorder-record 1", "highorder-record 2")).unwrap();
    let told = read_record(&folder).unwrap_err().to_string();
    assert!(told.contains("expected `highorder-record 2` and a checksum"), "{told}");
    fs::write(&path, old).unwrap();
    let mut read = read_record(&folder).unwrap();
    assert!(store.set_column(&read.inputs, 2).unwrap());
    read.column = Some(2);
    assert_eq!(read_record(&folder).unwrap(), read);
}

#[test]
fn reading_a_store_leaves_it_as_it_is() {
    let (_folder, store) = store();
    store.put(&record("linux-4.4", 4, 7)).unwrap();
    fs::remove_file(store.folder().join(".lock")).unwrap();
    fs::create_dir(store.folder().join(".part-of-somebody")).unwrap();
    let before = bytes_below(store.folder());
    let reading = Store::to_read(store.folder());
    let entry = reading.list().unwrap().remove(0);
    reading.read(&entry).unwrap();
    assert!(bytes_below(store.folder()) == before);
    assert!(store.folder().join(".part-of-somebody").is_dir());
}

#[test]
fn whoever_keeps_a_store_locked_is_named() {
    let (_folder, store) = store();
    let lock = fs::File::options().append(true).open(store.folder().join(".lock")).unwrap();
    lock.lock().unwrap();
    let told = store.put(&record("linux-4.4", 4, 7)).unwrap_err().to_string();
    assert!(told.contains(&format!("locked by process {} (", std::process::id())), "{told}");
    assert!(told.contains("then run again"), "{told}");
    lock.unlock().unwrap();
    store.put(&record("linux-4.4", 4, 7)).unwrap();
}

#[test]
fn what_another_build_left_is_found_where_it_is_asked_for() {
    let (_folder, store) = store();
    let mut old = record("linux-4.4", 4, 7);
    old.inputs.program_sources = "an older one".to_owned();
    store.put(&old).unwrap();
    let mut inputs = old.inputs.clone();
    inputs.program_sources = "this one".to_owned();
    assert!(!store.has(&inputs));
    assert_eq!(store.of_another_program(&inputs).unwrap().as_ref(), Some(&old));
    inputs.seed = 8;
    assert_eq!(store.of_another_program(&inputs).unwrap(), None);
}
