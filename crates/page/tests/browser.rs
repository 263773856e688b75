//! The page in a browser: nothing runs over the edge at any width, the script shows the values that
//! were recorded, and without it every step is there.
//!
//! Needs Chromium, and skips without it. The pages are left in the target folder's `tmp/pages`, to be
//! looked at.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use highorder_page::{Image, Map, Page, render, shown_runs};
use highorder_record::{Form, Group, Record};

/// Writes to the end of the page what a browser makes of it, a line each.
const PROBE: &str = r#"<script>
addEventListener('load', () => {
  const slider = document.querySelector('.step:not([hidden]) .reader input');
  const figure = document.querySelector('.step:not([hidden]) figure[data-group]');
  if (slider) {
    slider.value = 500;
    slider.dispatchEvent(new Event('input'));
  }
  const probe = document.createElement('pre');
  probe.id = 'probe';
  probe.textContent = [
    'width ' + document.documentElement.scrollWidth + ' of ' + innerWidth,
    'steps ' + [...document.querySelectorAll('.step')].filter((step) => step.offsetHeight > 0).length,
    'free ' + (figure ? figure.querySelector('.value').textContent : ''),
    'time ' + (slider ? slider.getAttribute('aria-valuetext') : ''),
    'fills ' + new Set([...document.querySelectorAll('.step:not([hidden]) path.area.stack')].map(
      (area) => getComputedStyle(area).fill + ' ' + getComputedStyle(area).opacity)).size,
    'keys ' + new Set([...document.querySelectorAll('.step:not([hidden]) .keys path.stack')].map(
      (key) => getComputedStyle(key).stroke + ' ' + getComputedStyle(key).strokeWidth)).size,
  ].join('\n');
  parent.document.body.append(probe);
});
</script>"#;

/// Chromium, if it is installed.
fn chromium() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = names.into_iter().find(|name| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        eprintln!("SKIPPED: no Chromium (looked for {})", names.join(", "));
    }
    found
}

fn write(name: &str, html: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    fs::write(&path, html).unwrap();
    path
}

fn html(title: &str, groups: &[Group<'_>], maps: &[Map<'_>]) -> String {
    let command = "highorder run experiments/usemem-anon.toml --scale 1/16";
    render(&Page { title, command, groups, form: Form::Y2016, maps }).unwrap()
}

/// What the probe wrote about a page in a frame `width` pixels wide: windows cannot be as narrow as
/// telephones are.
fn probe(chromium: &str, name: &str, html: &str, width: u32) -> Vec<String> {
    let html = html.replace("</body>", &format!("{PROBE}</body>"));
    let framed = html.replace('&', "&amp;").replace('"', "&quot;");
    let frame = format!(
        "<!DOCTYPE html><meta charset=\"utf-8\"><style>body, iframe {{ margin: 0; border: 0; }}</style>\
         <iframe width=\"{width}\" height=\"9000\" srcdoc=\"{framed}\"></iframe>"
    );
    let page = write(&format!("{name}-{width}-framed.html"), &frame);
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--dump-dom"])
        .args(["--virtual-time-budget=4000", "--window-size=1600,1200"])
        .arg("--host-resolver-rules=MAP * ~NOTFOUND")
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let (_, probe) = dom.rsplit_once("<pre id=\"probe\">").expect("the probe's words");
    let (probe, _) = probe.split_once("</pre>").unwrap();
    probe.lines().map(str::to_owned).collect()
}

/// The free memory in bytes of the sample nearest to the middle of the axis.
fn free_in_the_middle(record: &Record, end_ns: u64) -> f64 {
    let timeline = &record.timeline;
    let distance = |i: &usize| timeline.time_ns[*i].abs_diff(end_ns / 2);
    let nearest = (0..timeline.len()).min_by_key(distance).unwrap();
    timeline.get("nr_free_pages", nearest).unwrap() * 4096.0
}

#[test]
fn a_browser_shows_the_page_whole_at_every_width() {
    let made_up = common::made_up(3);
    let three = common::groups(&made_up);
    let two = &three[..2];
    let runs = shown_runs(two);
    let picture = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"900\" height=\"300\">\
                   <rect width=\"900\" height=\"300\" fill=\"teal\"/></svg>";
    let map = |run: &&Record| Map {
        run: run.identity(),
        description: "every page of memory",
        image: Image::Svg(picture),
    };
    let maps: Vec<Map<'_>> = runs.iter().rev().take(2).map(map).collect();
    let cases = common::cases();
    let pages = [
        ("two", html("usemem-anon: swappiness 60 and 1", two, &maps)),
        ("three", html("usemem-anon: three variants", &three, &[])),
        ("cases", html("Two real kernels", &common::case_groups(&cases), &[])),
    ];
    for (name, html) in &pages {
        write(&format!("{name}.html"), html);
    }
    let Some(chromium) = chromium() else { return };
    for (name, html) in &pages {
        for width in [400, 900, 1600] {
            let words = probe(chromium, name, html, width);
            let numbers: Vec<u32> =
                words[0].split(' ').filter_map(|word| word.parse().ok()).collect();
            assert_eq!(numbers[1], width, "the width asked for");
            assert!(numbers[0] <= numbers[1], "{name} runs over the edge: {}", words[0]);
            assert_eq!(words[1], "steps 1", "{name}");
        }
    }
}

#[test]
fn the_slider_shows_what_was_recorded() {
    let Some(chromium) = chromium() else { return };
    // Short enough to be drawn without thinning.
    let mut records = common::made_up(1);
    let record = &mut records[0][0];
    record.timeline.time_ns.truncate(201);
    for column in &mut record.timeline.columns {
        let highorder_record::TimelineValues::Counts(values) = &mut column.values else { panic!() };
        values.truncate(201);
    }
    let groups = [Group { label: "a".into(), records: vec![&records[0][0]] }];
    let words = probe(chromium, "slider", &html("slider", &groups, &[]), 1200);
    let end_ns = *records[0][0].timeline.time_ns.last().unwrap();
    let gib = free_in_the_middle(&records[0][0], end_ns) / (1_u64 << 30) as f64;
    assert_eq!(words[2], format!("free {} GiB", (gib * 100.0).round() / 100.0));
    assert_eq!(words[3], format!("time {} s", end_ns as f64 / 2e9));
}

#[test]
fn each_part_of_memory_by_use_has_a_colour_of_its_own_in_the_plot_and_in_its_legend() {
    let Some(chromium) = chromium() else { return };
    let records = common::made_up(1);
    let words = probe(chromium, "uses", &html("uses", &common::groups(&records), &[]), 900);
    assert_eq!(words[4], "fills 8");
    assert_eq!(words[5], "keys 8");
}

#[test]
fn without_the_script_every_step_is_there() {
    let Some(chromium) = chromium() else { return };
    let records = common::made_up(1);
    let page = html("no script", &common::groups(&records), &[]);
    // The page's own scripts become inert; the probe alone runs.
    let page = page.replace("<script>", "<script type=\"text/plain\">");
    let words = probe(chromium, "no-script", &page, 900);
    assert_eq!(words[1], format!("steps {}", common::THREADS.len()));
    assert_eq!(words[2], "free ");
}
