//! Reports of several generations of kernels, whole and damaged.

use highorder_explain::{Counter, Kind, Refusal, Report, judge, read};

#[track_caller]
fn one(text: &str) -> Report {
    let mut reports = read(text.as_bytes()).expect("a log");
    assert_eq!(reports.len(), 1, "{reports:?}");
    reports.remove(0)
}

fn refusals(report: &Report) -> Vec<Refusal> {
    judge::judge(report).into_iter().map(|verdict| verdict.refusal).collect()
}

/// A network driver's atomic request on 3.2: flags by number, lists without letters of types.
const LINUX_3_2: &str = "\
Jan  1 00:00:01 host kernel: [  100.000001] swapper/0: page allocation failure: order:4, mode:0x4020
Jan  1 00:00:01 host kernel: [  100.000002] Pid: 0, comm: swapper/0 Not tainted 3.2.0-4-amd64 #1 Debian
Jan  1 00:00:01 host kernel: [  100.000003] Call Trace:
Jan  1 00:00:01 host kernel: [  100.000004]  [<ffffffff810babcd>] ? warn_alloc_failed+0x11a/0x12d
Jan  1 00:00:01 host kernel: [  100.000005] Mem-Info:
Jan  1 00:00:01 host kernel: [  100.000006] Node 0 DMA32 free:20000kB min:4000kB low:5000kB high:6000kB active_anon:0kB
Jan  1 00:00:01 host kernel: [  100.000007] lowmem_reserve[]: 0 0 0 0
Jan  1 00:00:01 host kernel: [  100.000008] Node 0 DMA32: 4000*4kB 500*8kB 0*16kB 0*32kB 0*64kB 0*128kB 0*256kB 0*512kB 0*1024kB 0*2048kB 0*4096kB = 20000kB
";

#[test]
fn linux_3_2_refuses_by_its_share_of_each_order() {
    let report = one(LINUX_3_2);
    assert_eq!((report.kind, report.order, report.line), (Kind::Failure, Some(4), 1));
    assert_eq!(report.task, "swapper/0");
    assert_eq!(report.release.as_deref(), Some("3.2.0-4-amd64"));
    assert!(!report.names_flags);
    assert_eq!(report.zones[0].lists[1].blocks, 500);
    // 5000 free pages, of which 4000 are single ones, and the last 1000 pairs; half of the mark is 500.
    assert_eq!(refusals(&report), [Refusal::OrderShare { order: 2 }]);
}

const LINUX_6_1: &str = "\
[   12.345678][  T123] kworker/0:1: page allocation failure: order:9, mode:0x40dc0(GFP_KERNEL|__GFP_COMP|__GFP_ZERO), nodemask=(null),cpuset=/,mems_allowed=0
[   12.345679][  T123] CPU: 0 PID: 123 Comm: kworker/0:1 Tainted: G           O       6.1.0-18-amd64 #1  Debian 6.1.76-1
[   12.345680][  T123]  warn_alloc+0x12d/0x1b0
[   12.345681][  T123] Node 0 DMA free:15360kB boost:0kB min:40kB low:52kB high:64kB reserved_highatomic:0KB active_anon:0kB present:15992kB managed:15360kB
[   12.345682][  T123] lowmem_reserve[]: 0 4000 4000 4000 4000
[   12.345683][  T123] Node 0 Normal free:40000kB boost:0kB min:8000kB low:9000kB high:10000kB reserved_highatomic:2048KB active_anon:4kB
[   12.345684][  T123] lowmem_reserve[]: 0 0 0 0 0
[   12.345685][  T123] Node 0 DMA: 0*4kB 0*8kB 0*16kB 0*32kB 0*64kB 0*128kB 0*256kB 0*512kB 1*1024kB (U) 1*2048kB (M) 3*4096kB (M) = 15360kB
[   12.345686][  T123] Node 0 Normal: 4000*4kB (UME) 1500*8kB (UM) 622*16kB (UM) 0*32kB 0*64kB 0*128kB 0*256kB 0*512kB 0*1024kB 1*2048kB (H) 0*4096kB = 40000kB
[   12.345687][  T123] Node 0 hugepages_total=0 hugepages_free=0 hugepages_surp=0 hugepages_size=2048kB
";

#[test]
fn linux_6_1_names_flags_and_types() {
    let report = one(LINUX_6_1);
    assert_eq!(report.release.as_deref(), Some("6.1.0-18-amd64"));
    assert!(report.names_flags);
    // DMA keeps 4000 pages from requests that may use Normal; Normal's only block is for urgent ones.
    let expected = [
        Refusal::Watermark { needed: 10 + 4000 + 511, missing: 10 + 4000 + 512 - 3840 },
        Refusal::OtherTypes("H".to_owned()),
    ];
    assert_eq!(refusals(&report), expected);
}

#[test]
fn an_urgent_request_may_take_what_is_reserved_for_it() {
    let urgent = LINUX_6_1.replace("GFP_KERNEL|__GFP_COMP", "GFP_ATOMIC|__GFP_COMP");
    assert_eq!(refusals(&one(&urgent))[1], Refusal::Nothing);
}

#[test]
fn without_a_block_the_fragmentation_index_is_told() {
    let text = LINUX_6_1.replace("1*2048kB (H)", "0*2048kB");
    let report = one(&text);
    let verdict = &judge::judge(&report)[1];
    assert_eq!(verdict.refusal, Refusal::NoBlock { largest: Some(2) });
    // 9488 pages in 6122 blocks: 1000 - (1000 + 9488000 / 512) / 6122 = 997 thousandths.
    assert_eq!(verdict.fragmentation_index, Some(0.997));
}

const HUNG: &str = "\
INFO: task redis-server:411 blocked for more than 120 seconds.
      Not tainted 4.19.0-6-amd64 #1 Debian 4.19.67-2
Call Trace:
 __schedule+0x2a2/0x870
 migrate_pages+0x8b1/0xb90
 compact_zone+0x6ac/0xc10
 try_to_compact_pages+0xd4/0x230
";

#[test]
fn a_task_that_hangs_in_compaction_is_told_by_its_stack() {
    let report = one(HUNG);
    assert_eq!((report.kind, report.order), (Kind::Hung, None));
    assert_eq!(report.task, "redis-server:411");
    assert!(report.stack.iter().any(|function| function == "compact_zone"));
}

#[test]
fn reports_of_guests_are_read_whole() {
    for (text, release) in
        [(include_str!("data/oom-6.1.txt"), "6.1."), (include_str!("data/oom-6.12.txt"), "6.12.")]
    {
        let reports = read(text.as_bytes()).expect("a log");
        let report = reports.first().expect("a report");
        assert_eq!((report.kind, report.order), (Kind::Oom, Some(0)), "{release}");
        assert!(report.release.as_deref().is_some_and(|found| found.starts_with(release)));
        assert_eq!(report.zones.len(), 2, "DMA and DMA32");
        let refusals = refusals(report);
        let by_mark = |refusal: &Refusal| matches!(refusal, Refusal::Watermark { .. });
        assert!(refusals.iter().all(by_mark), "{release}: {refusals:?}");
        assert!(report.zones.iter().all(|zone| zone.lists.len() == 11));
    }
}

/// A cgroup of version 2 at its limit.
const CGROUP_6_12: &str = "\
[ 3500.1] stress-ng invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
[ 3500.1] CPU: 3 UID: 0 PID: 12345 Comm: stress-ng Not tainted 6.12.0 #1
[ 3500.1]  mem_cgroup_out_of_memory+0x13a/0x150
[ 3500.1] memory: usage 102400kB, limit 102400kB, failcnt 3311
[ 3500.1] swap: usage 0kB, limit 9007199254740988kB, failcnt 0
[ 3500.1] Memory cgroup stats for /user.slice/test:
[ 3500.1] anon 104345600
[ 3500.1] [  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name
[ 3500.1] [  12345]     0 12345    33144    32834   303104        0             0 stress-ng
[ 3500.1] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/user.slice/test,task_memcg=/user.slice/test/a,b,task=stress-ng,pid=12345,uid=0
[ 3500.1] Memory cgroup out of memory: Killed process 12345 (stress-ng) total-vm:132576kB, anon-rss:131200kB, file-rss:0kB
[ 3500.1] Tasks in /user.slice/test/a,b are going to be killed due to memory.oom.group set
[ 3500.1] Memory cgroup out of memory: Killed process 12346 (other) total-vm:132576kB, anon-rss:131200kB, file-rss:0kB
";

/// The same of version 1, where memory and swap together reached their limit.
const CGROUP_4_14: &str = "\
Jan  1 00:00:01 host kernel: java invoked oom-killer: gfp_mask=0x14000c0(GFP_KERNEL), nodemask=(null),  order=0, oom_score_adj=0
Jan  1 00:00:01 host kernel: CPU: 1 PID: 99 Comm: java Not tainted 4.14.0-3-amd64 #1 Debian 4.14.17-1
Jan  1 00:00:01 host kernel: Task in /docker/c0/inner killed as a result of limit of /docker/c0
Jan  1 00:00:01 host kernel: memory: usage 51200kB, limit 102400kB, failcnt 0
Jan  1 00:00:01 host kernel: memory+swap: usage 204800kB, limit 204800kB, failcnt 7
Jan  1 00:00:01 host kernel: kmem: usage 900kB, limit 9007199254740988kB, failcnt 0
Jan  1 00:00:01 host kernel: Memory cgroup stats for /docker/c0: cache:0KB rss:0KB
Jan  1 00:00:01 host kernel: Memory cgroup stats for /docker/c0/inner: cache:0KB rss:51200KB
Jan  1 00:00:01 host kernel: Memory cgroup out of memory: Kill process 99 (java (x)) score 973 or sacrifice child
Jan  1 00:00:01 host kernel: Killed process 99 (java (x)) total-vm:132576kB, anon-rss:131200kB, file-rss:0kB, shmem-rss:0kB
";

#[test]
fn a_cgroup_at_its_limit_is_told_from_a_machine_that_is_short_of_memory() {
    let report = one(CGROUP_6_12);
    let cgroup = report.cgroup.expect("a cgroup");
    assert_eq!(cgroup.path.as_deref(), Some("/user.slice/test"));
    assert_eq!(cgroup.task_path.as_deref(), Some("/user.slice/test/a,b"));
    assert_eq!(cgroup.killed_group, cgroup.task_path);
    let memory = Counter { name: "memory", usage_kib: 102_400, limit_kib: Some(102_400) };
    let swap = Counter { name: "swap", usage_kib: 0, limit_kib: None };
    assert_eq!(cgroup.counters, [memory, swap]);
    assert_eq!(cgroup.reached(), Some(&memory));
    let killed = report.killed.expect("one that was killed");
    assert_eq!((killed.name.as_str(), killed.pid), ("stress-ng", 12345));

    let report = one(CGROUP_4_14);
    let cgroup = report.cgroup.expect("a cgroup");
    assert_eq!(cgroup.path.as_deref(), Some("/docker/c0"));
    assert_eq!(cgroup.task_path.as_deref(), Some("/docker/c0/inner"));
    let names: Vec<_> = cgroup.counters.iter().map(|counter| counter.name).collect();
    assert_eq!(names, ["memory", "memory+swap", "kmem"]);
    assert_eq!(cgroup.reached().map(|counter| counter.name), Some("memory+swap"));
    let killed = report.killed.expect("one that was killed");
    assert_eq!((killed.name.as_str(), killed.pid), ("java (x)", 99));
}

#[test]
fn a_cgroup_without_a_task_to_kill_is_told_too() {
    let (head, rest) = CGROUP_4_14.split_once("Task in ").expect("whose limit it is");
    let (_, rest) = rest.split_once('\n').expect("a line");
    let report = one(&format!("{head}Memory limit reached of cgroup /docker/c0\n{rest}"));
    let cgroup = report.cgroup.expect("a cgroup");
    assert_eq!((cgroup.path.as_deref(), cgroup.task_path), (Some("/docker/c0"), None));
}

#[test]
fn a_machine_that_is_short_of_memory_is_not_taken_for_a_cgroup_at_its_limit() {
    // Of further kills in quick succession the kernel tells the last line alone.
    let next = "Memory cgroup out of memory: Killed process 7 (other) total-vm:4kB, anon-rss:4kB\n";
    for text in [include_str!("data/oom-6.1.txt"), include_str!("data/oom-6.12.txt")] {
        let report = read(format!("{text}\n{next}").as_bytes()).expect("a log").remove(0);
        assert_eq!(report.cgroup, None);
        assert!(report.killed.is_some_and(|killed| killed.name != "other"));
    }
}

#[test]
fn damage_is_passed_over() {
    for text in [LINUX_6_1, CGROUP_6_12, CGROUP_4_14] {
        for cut in 0..text.len() {
            for report in read(&text.as_bytes()[..cut]).expect("a log") {
                drop(judge::judge(&report));
            }
        }
    }
    let huge = LINUX_6_1
        .replace("4000*4kB", "99999999999999999999*4kB")
        .replace("8000kB", "18446744073709551615kB");
    drop(judge::judge(&one(&huge)));
    assert_eq!(read(b"nothing of this kind\n\xff\xfe").expect("a log"), []);
}
