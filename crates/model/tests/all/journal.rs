//! The journal on the model: blocks of inode tables are held until they are in their places on the disk.

use crate::common::model;
use highorder_kernels::machine;
use highorder_model::run_on;
use highorder_record::{Inputs, Record};
use highorder_sim::machine::FileSystem;
use highorder_sim::{DeviceKind, Machine, Ns};
use highorder_system::{Caches, Failure, System, ThreadSpec};
use std::sync::{Arc, Mutex};

/// Runs a program on 512 MiB with a flash disk. Returns what it noted, the record, and pages of metadata in memory.
fn run(
    kernel: &str,
    program: impl FnOnce(&mut dyn System, &mut Vec<u64>) -> Result<(), Failure> + Send + 'static,
) -> (Vec<u64>, Record, u64) {
    run_on_machine(kernel, |_| (), program)
}

fn run_on_machine(
    kernel: &str,
    change: impl FnOnce(&mut Machine),
    program: impl FnOnce(&mut dyn System, &mut Vec<u64>) -> Result<(), Failure> + Send + 'static,
) -> (Vec<u64>, Record, u64) {
    let mut machine = machine::load("fleet-8g").unwrap().scaled(1, 16).unwrap();
    change(&mut machine);
    let noted = Arc::new(Mutex::new(Vec::new()));
    let seen = noted.clone();
    let code = Box::new(move |sys: &mut dyn System| program(sys, &mut seen.lock().unwrap()));
    let (record, world) = run_on(model(machine, kernel, "never"), Inputs::default(), code).unwrap();
    world.memory.audit().unwrap();
    assert!(record.notes.is_empty(), "{:?}", record.notes);
    let noted = noted.lock().unwrap().clone();
    (noted, record, world.nr_buffer_pages())
}

/// Pages of files in memory once all that can go without shrinking has gone.
fn pages_that_stay(sys: &mut dyn System) -> Result<u64, Failure> {
    sys.drop_caches(Caches::Pages)?;
    Ok(sys.counters()["nr_file_pages"])
}

fn create(sys: &mut dyn System, name: &str) -> Result<(), Failure> {
    let file = sys.create_file(name)?;
    sys.close_file(file)
}

#[test]
fn a_changed_block_stays_until_it_is_committed_and_written_and_let_go() {
    // Since 5.14 shrinking or the next commit has to let go what is written.
    for (kernel, stays) in [("linux-4.4", 0), ("linux-5.4", 0), ("linux-6.1", 1), ("linux-6.12", 1)]
    {
        let (noted, _, _) = run(kernel, |sys, noted| {
            create(sys, "file")?;
            noted.push(pages_that_stay(sys)?);
            // Committed, and only now dirty.
            sys.sleep(Ns::from_secs(6))?;
            noted.push(sys.counters()["nr_dirty"]);
            noted.push(pages_that_stay(sys)?);
            // Written to its place.
            sys.sleep(Ns::from_secs(45))?;
            noted.push(sys.counters()["nr_dirty"]);
            noted.push(pages_that_stay(sys)?);
            sys.drop_caches(Caches::Slab)?;
            noted.push(pages_that_stay(sys)?);
            // The same, but that sync commits and writes.
            create(sys, "another")?;
            sys.sync()?;
            noted.push(pages_that_stay(sys)?);
            Ok(())
        });
        assert_eq!(noted, [1, 1, 1, 0, stays, 0, stays], "{kernel}");
    }
}

#[test]
fn the_next_commit_lets_go_what_was_written() {
    let (noted, _, _) = run("linux-6.12", |sys, noted| {
        // Of two blocks the second is changed once more.
        for number in 0..32 {
            create(sys, &format!("file-{number}"))?;
        }
        sys.sync()?;
        noted.push(pages_that_stay(sys)?);
        create(sys, "another")?;
        sys.unlink("another")?;
        create(sys, "another")?;
        sys.sleep(Ns::from_secs(6))?;
        noted.push(pages_that_stay(sys)?);
        Ok(())
    });
    // The third block alone.
    assert_eq!(noted, [2, 1]);
}

#[test]
fn nothing_is_dirty_before_the_commit() {
    let (noted, _, _) = run("linux-6.12", |sys, noted| {
        create(sys, "file")?;
        for _ in 0..3 {
            noted.push(sys.counters()["nr_dirty"]);
            sys.sleep(Ns::from_secs(2))?;
        }
        noted.push(sys.counters()["nr_dirty"]);
        Ok(())
    });
    assert_eq!(noted, [0, 0, 0, 1]);
}

#[test]
fn reading_a_file_for_the_first_time_since_it_was_written_changes_its_inode() {
    let (noted, _, _) = run("linux-4.4", |sys, noted| {
        let file = sys.create_file("file")?;
        sys.write_file(file, 0, 4096)?;
        sys.sync()?;
        noted.push(pages_that_stay(sys)?);
        for _ in 0..2 {
            sys.read_file(file, 0, 4096)?;
            noted.push(pages_that_stay(sys)?);
            sys.sync()?;
            noted.push(pages_that_stay(sys)?);
        }
        Ok(())
    });
    assert_eq!(noted, [0, 1, 0, 0, 0]);
}

#[test]
fn held_blocks_outlast_memory_pressure_and_others_do_not() {
    // Changed; written as well, which is as good as free before 5.14; asked to go by much pressure, too.
    for (kernel, stay) in [("linux-4.4", [11, 1, 1]), ("linux-6.12", [11, 11, 1])] {
        for (steps, stay) in stay.into_iter().enumerate() {
            let (_, record, buffers) = run(kernel, move |sys, _| {
                // Sixteen inodes to a block.
                for number in 0..160 {
                    create(sys, &format!("file-{number}"))?;
                }
                let file = sys.create_file("large")?;
                if steps > 0 {
                    sys.sync()?;
                }
                if steps > 1 {
                    sys.drop_caches(Caches::Slab)?;
                }
                // Read through in less time than a transaction lasts.
                let began = sys.now();
                let memory = sys.machine().total_pages * 4096;
                sys.set_file_bytes(file, 2 * memory)?;
                for at in (0..2 * memory).step_by(1 << 20) {
                    sys.read_file(file, at, 1 << 20)?;
                }
                assert!(sys.now() - began < Ns::from_secs(4));
                // Nothing but the large file's block has changed since, where the others were let go.
                sys.drop_caches(Caches::Pages)
            });
            let sum = |name: &str| {
                let counters = record.after.counters.iter();
                counters.filter(|(key, _)| key.starts_with(name)).map(|(_, n)| n).sum::<u64>()
            };
            let reclaimed = sum("pgsteal_kswapd") + sum("pgsteal_direct");
            assert!(reclaimed > 50_000, "{kernel}: {reclaimed}");
            assert_eq!(buffers, stay, "{kernel}, {steps}");
        }
    }
}

#[test]
fn xfs_keeps_inodes_outside_of_the_page_cache() {
    let machine = |machine: &mut Machine| machine.file_systems = vec![FileSystem::Xfs; 2];
    let (noted, _, _) = run_on_machine("linux-6.12", machine, |sys, noted| {
        create(sys, "file")?;
        noted.push(sys.counters()["nr_dirty"]);
        sys.sync()?;
        noted.push(pages_that_stay(sys)?);
        Ok(())
    });
    assert_eq!(noted, [0, 0]);
}

#[test]
fn a_deleted_file_changes_its_inode_too() {
    let (noted, _, _) = run("linux-4.4", |sys, noted| {
        create(sys, "file")?;
        sys.sync()?;
        // The block is read again where it went.
        let file = sys.open_file("file")?;
        sys.close_file(file)?;
        noted.push(sys.counters()["nr_file_pages"]);
        sys.unlink("file")?;
        noted.push(pages_that_stay(sys)?);
        Ok(())
    });
    assert_eq!(noted, [1, 1]);
}

#[test]
fn a_file_may_be_deleted_while_its_inode_is_read_to_open_it() {
    for file_system in [FileSystem::Ext4, FileSystem::Xfs] {
        let machine = |machine: &mut Machine| machine.file_systems = vec![file_system; 2];
        run_on_machine("linux-4.20", machine, |sys, _| {
            for micros in (0..400).step_by(10) {
                create(sys, "file")?;
                sys.sync()?;
                sys.sleep(Ns::from_secs(40))?;
                sys.drop_caches(Caches::All)?;
                // Whoever comes too late is told that there is no such file.
                let open = |sys: &mut dyn System| match sys.open_file("file") {
                    Ok(file) => sys.close_file(file),
                    Err(_) => Ok(()),
                };
                let opener = sys.spawn(ThreadSpec::thread("opener"), Box::new(open))?;
                sys.sleep(Ns::from_micros(micros))?;
                sys.unlink("file")?;
                sys.join(opener)?;
            }
            Ok(())
        });
    }
}

/// Requests that the queue of a slow disk holds.
const SLOW_REQUESTS: u64 = 4;

/// Disks so slow, and with so short queues, that a tenth of a second writes little of what is dirty.
fn slow_disks(machine: &mut Machine) {
    for disk in &mut machine.disks {
        disk.nr_requests = SLOW_REQUESTS as u32;
        if let DeviceKind::Flash { write, .. } = &mut disk.kind {
            write.bandwidth = 20 << 20;
        }
    }
}

#[test]
fn what_was_queued_while_too_much_was_dirty_is_written_at_the_next_look_for_old_pages() {
    const FILE: u64 = 1 << 20;
    let (noted, _, _) = run_on_machine("linux-6.12", slow_disks, |sys, noted| {
        let files = sys.machine().total_pages * 4096 / FILE / 8;
        for number in 0..files {
            let file = sys.create_file(&format!("file-{number}"))?;
            sys.write_file(file, 0, FILE)?;
            sys.close_file(file)?;
        }
        noted.push(files * FILE / 4096);
        sys.sleep(Ns::from_secs(3))?;
        noted.push(sys.counters()["nr_dirty"]);
        // Long before anything is old.
        sys.sleep(Ns::from_secs(12))?;
        noted.push(sys.counters()["nr_dirty"]);
        Ok(())
    });
    // A tenth of memory may be dirty, an eighth was made so. What became dirty after the queue was made stays.
    let [all, soon, later] = noted[..] else { panic!("{noted:?}") };
    assert!(soon < all * 9 / 10 && soon > all / 2, "{soon} of {all}");
    assert!(later < soon / 2 && later > 0, "{later} of {soon}");
}

#[test]
fn a_full_queue_holds_fewer_pages_where_requests_are_shorter() {
    // `BLK_DEF_MAX_SECTORS`; the disk itself takes 1280 KiB.
    for (kernel, request_kib) in [("linux-3.5", 512), ("linux-4.4", 1280)] {
        let (noted, _, _) = run_on_machine(kernel, slow_disks, |sys, noted| {
            let file = sys.create_file("file")?;
            sys.write_file(file, 0, sys.machine().total_pages * 4096 / 8)?;
            sys.close_file(file)?;
            sys.sleep(Ns::from_millis(500))?;
            noted.push(sys.counters()["nr_writeback"]);
            Ok(())
        });
        let most = SLOW_REQUESTS * request_kib / 4;
        // A request that the disk is at counts no longer for the queue, but its pages are not written yet.
        let range = most / 2..=most * (SLOW_REQUESTS + 1) / SLOW_REQUESTS;
        assert!(range.contains(&noted[0]), "{kernel}: {} of {most}", noted[0]);
    }
}
