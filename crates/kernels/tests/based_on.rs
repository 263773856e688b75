//! Machine files that are based on others: what they take over, and how bad ones are refused.

use highorder_kernels::machine;
use highorder_sim::Machine;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// What a file of this text in the folder describes, or the message that refuses it.
fn load(folder: &Path, name: &str, text: &str) -> Result<Machine, String> {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    machine::load(path.to_str().unwrap()).map_err(|error| error.to_string())
}

/// The same in a folder of its own, with the folder's name taken out of the message.
fn alone(text: &str) -> Result<Machine, String> {
    let folder = TempDir::new().unwrap();
    load(folder.path(), "mine.toml", text).map_err(|message| without(&message, folder.path()))
}

fn without(message: &str, folder: &Path) -> String {
    message.replace(&format!("{}/", folder.display()), "")
}

fn refused(text: &str) -> String {
    alone(text).unwrap_err()
}

fn built_in(name: &str) -> Machine {
    machine::load(name).unwrap()
}

/// The machine with what another one says of itself, to compare their values.
fn called(machine: Machine, other: &Machine) -> Machine {
    let Machine { name, description, sources, .. } = other.clone();
    Machine { name, description, sources, ..machine }
}

#[test]
fn three_lines_make_mine_but_16_gib_and_one_node() {
    let mine = alone("based_on = \"two-node-64g\"\n[[node]]\nmemory_mib = 16384\n").unwrap();
    let base = built_in("two-node-64g");
    assert_eq!((mine.nodes.len(), mine.nodes[0].memory_bytes), (1, 16 << 30));
    assert_eq!(mine.nodes[0].cpus, base.nodes[0].cpus);
    assert_eq!(mine.nodes[0].distances, [10]);
    assert_eq!(Machine { nodes: base.nodes.clone(), ..called(mine.clone(), &base) }, base);
    assert_eq!(mine.name, "mine");
    assert_eq!(
        mine.description,
        "1 node x 16 GiB, 24 CPUs, 2 disks, 1 GiB of swap, otherwise two-node-64g"
    );
}

#[test]
fn a_file_that_only_names_its_base_is_the_same_machine() {
    let base = built_in("one-node-8g-in-use");
    let mine = alone("based_on = \"one-node-8g-in-use\"\n").unwrap();
    assert_eq!(called(mine, &base), base);
}

#[test]
fn keys_of_a_table_are_taken_over_one_by_one_and_a_cost_as_a_whole() {
    let mine = alone(
        "based_on = \"one-node-8g\"\ndescription = \"mine\"\n\
         [memory]\nreserved_high_mib = 100\nsource = \"zoneinfo of mine\"\n\
         [costs]\nsystem_call = { ns = 90, source = \"measured on mine\" }\n",
    )
    .unwrap();
    let mut expected = built_in("one-node-8g");
    expected.reserved.high_bytes = 100 << 20;
    let costs = [mine.costs.system_call.picoseconds(), mine.costs.list_op.picoseconds()];
    assert_eq!(costs, [90_000, expected.costs.list_op.picoseconds()]);
    assert_eq!(mine.costs.system_call.source, "measured on mine");
    expected.costs.system_call = mine.costs.system_call.clone();
    assert_eq!(called(mine, &expected), expected);
}

#[test]
fn a_list_is_replaced_as_a_whole_and_its_entries_have_the_rest_from_the_bases() {
    let mine = alone(
        "based_on = \"two-node-64g\"\n\
         [[node]]\n[[node]]\ncpus = 8\n[[node]]\nmemory_mib = 1024\ncpus = 0\n\
         [[disk]]\nname = \"nvme0n1\"\nsource = \"mine\"\n\
         flash = { queue_depth = 64, read = { access_ns = 1, command_ns = 0, bytes_per_second = 1_000_000_000 }, \
         write = { access_ns = 2, command_ns = 0, bytes_per_second = 1_000_000_000 } }\n\
         [[swap]]\ndisk = \"nvme0n1\"\n",
    )
    .unwrap();
    let base = built_in("two-node-64g");
    let memory: Vec<u64> = mine.nodes.iter().map(|node| node.memory_bytes >> 30).collect();
    assert_eq!(memory, [32, 32, 1]);
    let cpus: Vec<_> = mine.nodes.iter().map(|node| node.cpus.clone()).collect();
    assert_eq!(cpus, [0..24, 24..32, 32..32]);
    // The base says nothing of three nodes: the kernel's own default.
    assert_eq!(mine.nodes[1].distances, [20, 10, 20]);
    assert_eq!((mine.disks.len(), mine.swap.len()), (1, 1));
    assert_eq!(mine.disks[0].capacity_bytes, base.disks[0].capacity_bytes);
    assert!(!mine.disks[0].says_rotational, "it is flash, the base's disk is not");
    assert_eq!((mine.swap[0].offset_bytes, mine.swap[0].bytes), (1 << 30, 1 << 30));
}

#[test]
fn a_disk_of_the_same_kind_keeps_its_elevator() {
    let text = "based_on = \"one-node-3g-2012\"\n[[disk]]\nelevator = \"cfq\"\nsource = \"mine\"\n";
    let mine = alone(text).unwrap();
    assert_eq!(mine.disks[0].elevator, highorder_sim::Elevator::Cfq);
    assert_eq!(built_in("one-node-3g-2012").disks[0].elevator, highorder_sim::Elevator::Deadline);
    let of_two = built_in("four-node-64g-flash-swap").disks.into_iter().map(|disk| disk.elevator);
    let expected = [highorder_sim::Elevator::Deadline, highorder_sim::Elevator::Noop];
    assert_eq!(of_two.collect::<Vec<_>>(), expected, "the second is flash");
}

#[test]
fn nodes_as_many_as_the_bases_keep_its_distances() {
    let text = "based_on = \"two-node-64g\"\n[[node]]\nmemory_mib = 8192\n[[node]]\n";
    let mine = alone(text).unwrap();
    assert_eq!(mine.nodes[0].distances, [10, 21]);
    assert_eq!(mine.nodes[1].distances, [21, 10]);
    assert_eq!(
        mine.description,
        "2 nodes x 8 GiB + 32 GiB, 24 + 24 CPUs, 2 disks, 1 GiB of swap, otherwise two-node-64g"
    );
}

#[test]
fn an_empty_list_takes_swap_and_disks_away() {
    let mine = alone("based_on = \"one-node-8g\"\nswap = []\n").unwrap();
    assert_eq!((mine.disks.len(), mine.swap.len()), (1, 0));
    let mine = alone("based_on = \"one-node-8g\"\nswap = []\ndisk = []\n").unwrap();
    assert_eq!((mine.disks.len(), mine.swap.len()), (0, 0));
    assert!(mine.description.contains("no disk, no swap"), "{}", mine.description);
}

#[test]
fn a_machine_that_comes_with_the_program_is_what_its_text_written_whole_would_be() {
    let whole = |base: &str, changes: &[(&str, &str)]| {
        let mut text = base.to_owned();
        for (from, to) in changes {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        machine::parse(Path::new("whole.toml"), &text).unwrap()
    };
    let desktop = include_str!("../../../machines/one-node-8g.toml");
    let in_use = include_str!("../../../machines/one-node-8g-in-use.toml");
    let in_use_table = &in_use[in_use.find("[in_use]").unwrap()..];
    let of_2012 = [
        ("reserved_high_mib = 64", "reserved_high_mib = 433"),
        ("capacity_gb = 2000", "capacity_gb = 500"),
        ("bytes_per_second = 156_000_000", "bytes_per_second = 90_000_000"),
    ];
    for (name, expected) in [
        ("one-node-8g-in-use", whole(&format!("{desktop}{in_use_table}"), &[])),
        ("one-node-8g-2012", whole(desktop, &of_2012)),
        (
            "one-node-3g-2012",
            whole(
                &whole_text(desktop, &of_2012),
                &[
                    ("reserved_high_mib = 433", "reserved_high_mib = 0"),
                    ("memory_mib = 8192", "memory_mib = 3072"),
                ],
            ),
        ),
        (
            "one-node-8g-2012-half-disk",
            whole(&whole_text(desktop, &of_2012), &[("= 90_000_000", "= 45_000_000")]),
        ),
    ] {
        let machine = built_in(name);
        assert_ne!(machine.description, expected.description, "{name}");
        assert_eq!(called(machine, &expected), expected, "{name}");
    }
    let server = include_str!("../../../machines/two-node-64g.toml");
    let fleet = built_in("fleet-128g");
    let flash = [
        ("memory_mib = 32768", "memory_mib = 65536"),
        ("size_mib = 1024", "size_mib = 8192"),
        ("name = \"sda\"", "name = \"old\""),
        ("name = \"sdb\"", "name = \"sda\""),
    ];
    let mut expected = whole(server, &flash);
    expected.disks.remove(0);
    expected.file_systems.remove(0);
    expected.swap[0].device.0 = 0;
    assert_eq!(called(fleet, &expected), expected);
}

fn whole_text(base: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(base.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[test]
fn a_base_is_found_by_its_path_beside_the_file_and_among_what_comes_with_the_program() {
    let folder = TempDir::new().unwrap();
    let mib = |name: &str, text: &str| -> u64 {
        load(folder.path(), name, text).unwrap().memory_bytes() >> 20
    };
    let of =
        |base: &str, mib: u32| format!("based_on = \"{base}\"\n[[node]]\nmemory_mib = {mib}\n");
    assert_eq!(mib("office.toml", &of("one-node-8g", 4096)), 4096);
    // Its path is relative to the file that names it, not to where the program runs.
    let text = "based_on = \"../office.toml\"\n";
    assert_eq!(mib("below/by-path.toml", text), 4096);
    assert_eq!(mib("beside.toml", "based_on = \"office\"\n"), 4096);
    assert_eq!(mib("twice.toml", "based_on = \"beside\"\nswap = []\n"), 4096);
    // A file of the name of one that comes with the program is based on that one, not on itself.
    assert_eq!(mib("two-node-64g.toml", &of("two-node-64g", 2048)), 2048);
    // And for files beside it, it is the one of that name.
    assert_eq!(mib("after.toml", "based_on = \"two-node-64g\"\n"), 2048);
}

#[test]
fn a_circle_is_refused_where_it_closes() {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("a.toml", "# The first.\nbased_on = \"b.toml\"\n");
    write("b.toml", "based_on = \"./c.toml\"\n");
    write("c.toml", "\n\nbased_on = \"a\"\n");
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    let message = machine::load(path("a.toml").to_str().unwrap()).unwrap_err().to_string();
    assert_eq!(
        without(&message, folder.path()),
        "c.toml:3: `based_on` goes round in a circle: a.toml, b.toml, ./c.toml, a.toml"
            .replace("c.toml:3", "./c.toml:3")
    );
    let message = load(folder.path(), "self.toml", "based_on = \"self.toml\"\n").unwrap_err();
    assert!(message.contains("self.toml:1: `based_on` goes round in a circle"), "{message}");
}

#[test]
fn a_base_that_there_is_not_is_named_with_its_line() {
    let message = refused("\nbased_on = \"three-node\"\n");
    assert!(message.starts_with("mine.toml:2: `based_on`: no machine `three-node`, "), "{message}");
    let message = refused("based_on = \"two-node-64\"\n");
    let expected =
        "mine.toml:1: `based_on`: no machine `two-node-64`, did you mean `two-node-64g`?";
    assert_eq!(message, expected);
    let message = refused("based_on = \"nowhere.toml\"\n");
    let expected = "mine.toml:1: `based_on`: nowhere.toml: cannot read: No such file";
    assert!(message.starts_with(expected), "{message}");
    let message = refused("description = \"x\"\nbased_on = 7\n");
    assert_eq!(
        message,
        "mine.toml:2: `based_on` is of type integer, expected a file's name as text"
    );
}

#[test]
fn misspelt_keys_missing_and_impossible_values_are_named_with_their_lines() {
    let on = |text: &str| refused(&format!("based_on = \"two-node-64g\"\n{text}"));
    for (text, expected) in [
        ("base = 1\n", "mine.toml:2: unknown field `base`"),
        ("[costs]\nlist_up = { ns = 1, source = \"x\" }\n", "mine.toml:3: unknown field `list_up`"),
        ("[costs]\nlist_op = { ns = 1 }\n", "mine.toml:3: `costs.list_op.source` is set neither"),
        ("[[node]]\nmemory_mb = 1\n", "mine.toml:3: unknown field `memory_mb`"),
        ("[[node]]\nmemory_mib = 1\n", "mine.toml:3: `memory_mib` is 1, expected 16..="),
        (
            "[[node]]\nmemory_mib = \"x\"\n",
            "mine.toml:3: invalid type: string \"x\", expected a whole number, at least 0",
        ),
        ("[[node]]\ndistances = [10, 21]\n", "mine.toml:3: `distances` has 2 entries, expected 1"),
        ("node = 3\n", "mine.toml:2: invalid type: integer `3`, expected a sequence"),
        ("node = []\n", "mine.toml:2: no `[[node]]`, expected at least one"),
        ("[in_use]\nsource = \"x\"\n", "mine.toml:2: `in_use.unmovable_blocks_per_1000` is set"),
        (
            "[sched]\nlatency_ns = 1_000_000\n",
            "mine.toml:2: `[sched]` changes what the file is based on, expected a `source` of its own",
        ),
        (
            "[[disk]]\ncapacity_gb = 1\n",
            "mine.toml:2: `[[disk]]` changes what the file is based on, expected a `source` of its own",
        ),
        (
            "[[disk]]\n[[disk]]\n[[disk]]\nname = \"sdc\"\nsource = \"x\"\n",
            "mine.toml:4: `capacity_gb` is set neither here nor",
        ),
        (
            "[[swap]]\ndisk = \"sdx\"\n",
            "mine.toml:3: no disk `sdx`, expected one of this machine: sda, sdb",
        ),
        ("[costs\n", "mine.toml:2: "),
    ] {
        let message = on(text);
        assert!(message.starts_with(expected), "{message}\nis not\n{expected}");
    }
    // And nothing is said of the swap area that has no room then.
    assert_eq!(
        on("[[disk]]\ncapacity_gb = 0\nsource = \"x\"\n[[disk]]\n"),
        "mine.toml:3: `capacity_gb` is 0, expected 1..=1000000 GB"
    );
}

#[test]
fn what_is_wrong_in_a_base_is_told_of_the_base() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("base.toml"), "based_on = \"one-node-8g\"\n\n[[nodes]]\n")
        .unwrap();
    let message = load(folder.path(), "mine.toml", "based_on = \"base\"\n").unwrap_err();
    let (path, mine) = (folder.path().join("base.toml"), folder.path().join("mine.toml"));
    let place = format!("{}:3: unknown field `nodes`", path.display());
    assert!(message.starts_with(&place), "{message}");
    let led = format!("({} is based on this file)", mine.display());
    assert!(message.ends_with(&led), "{message}");
    // What the file says makes what its base says impossible.
    let message = refused("based_on = \"one-node-8g\"\ndisk = []\n");
    assert_eq!(
        message,
        "machines/one-node-8g.toml:37: no disk `sda`, expected one of this machine: none (mine.toml is \
         based on this file)"
    );
}

#[test]
fn a_file_of_its_own_still_needs_a_description_and_may_leave_distances_out() {
    let text = include_str!("../../../machines/two-node-64g.toml");
    let parse = |text: &str| machine::parse(Path::new("mine.toml"), text);
    let nameless = text.replace("description = ", "# ");
    let message = parse(&nameless).unwrap_err().to_string();
    assert_eq!(message, "mine.toml:1: missing field `description`");
    let by_default = text.replace("distances = ", "# ");
    let machine = parse(&by_default).unwrap();
    assert_eq!(machine.nodes[1].distances, [20, 10]);
}
