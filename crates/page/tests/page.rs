//! The page as a document: well formed, complete, self-contained, and the same every time.

mod common;

use std::collections::BTreeSet;

use highorder_page::{Image, Map, Page, PageError, render, shown_runs};
use highorder_record::{Form, Group, Inputs, Record};
use scraper::{Html, Selector};

const PNG: [u8; 8] = [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a];

fn page<'a>(groups: &'a [Group<'a>], maps: &'a [Map<'a>]) -> Page<'a> {
    Page {
        title: "swappiness <60> & 1",
        command: "highorder compare 'a b' \"c\" --format html > page.html",
        groups,
        form: Form::Y2016,
        maps,
    }
}

fn select(selector: &str) -> Selector {
    Selector::parse(selector).unwrap()
}

/// What must hold of every page.
fn check(html: &str, groups: &[Group<'_>]) -> Html {
    let document = Html::parse_document(html);
    assert_eq!(document.errors, Vec::<String>::new(), "as a parser reports them");

    let mut ids = BTreeSet::new();
    for element in document.select(&select("[id]")) {
        let id = element.attr("id").unwrap();
        assert!(ids.insert(id), "id {id} twice");
    }
    for (selector, attribute) in [
        ("[data-source]", "data-source"),
        ("[aria-labelledby]", "aria-labelledby"),
        ("label[for]", "for"),
        ("button[data-copy]", "data-copy"),
        ("option", "value"),
    ] {
        for element in document.select(&select(selector)) {
            let id = element.attr(attribute).unwrap();
            assert!(ids.contains(id), "{attribute} names {id}, which is not there");
        }
    }
    let readers: BTreeSet<&str> = document
        .select(&select("input[data-group]"))
        .map(|e| e.attr("data-group").unwrap())
        .collect();
    for plot in document.select(&select("figure[data-group]")) {
        let group = plot.attr("data-group").unwrap();
        assert!(readers.contains(group), "no reader for the plots of {group}");
    }

    // Nothing is fetched: every reference is into the page, or holds the data itself.
    for reference in ["http:", "https:", "url(", "@import", "src=\"/", "//cdn"] {
        assert!(!html.contains(reference), "{reference}");
    }
    for element in document.select(&select("[href], [src], [action], [srcset], [data]")) {
        let address = element.attr("href").or(element.attr("src")).unwrap();
        match address.strip_prefix('#') {
            Some(id) => assert!(ids.contains(id), "a link to {id}, which is not there"),
            None => assert!(address.starts_with("data:image/"), "{address}"),
        }
    }

    for group in groups {
        let has = |selector: &str| {
            let selector = select(selector);
            let mut found = document.select(&selector);
            found.any(|element| element.text().collect::<String>().contains(&group.label))
        };
        for place in ["header .variants li", "thead th", "#runs figcaption", ".keys .name"] {
            assert!(has(place), "{} is not in {place}", group.label);
        }
    }
    document
}

#[test]
fn a_page_is_well_formed_complete_and_asks_for_nothing_outside() {
    let records = common::made_up(2);
    let groups = common::groups(&records);
    let html = render(&page(&groups, &[])).unwrap();
    let document = check(&html, &groups);
    let text = |selector: &str| -> Vec<String> {
        document.select(&select(selector)).map(|e| e.text().collect::<String>()).collect()
    };
    assert_eq!(text("h1"), ["swappiness <60> & 1"]);
    assert_eq!(text("#command"), ["highorder compare 'a b' \"c\" --format html > page.html"]);
    let facts = text(".facts dd");
    for fact in ["usemem-anon", "two-node", "usemem", "1, 4, 12, 30, 48", "1–5", "1/16", "0.1.0"]
    {
        assert!(facts.iter().any(|other| other == fact), "{fact} in {facts:?}");
    }
    assert_eq!(
        text("#step-choice option"),
        ["1 thread", "4 threads", "12 threads", "30 threads", "48 threads"]
    );
    assert_eq!(document.select(&select("section.step")).count(), common::THREADS.len());
    let rows: Vec<String> = text("tbody th");
    for row in
        ["Amean System-48", "Kswapd efficiency", "Kswapd velocity", "pswpout", "p99.9 fault-huge"]
    {
        assert!(rows.iter().any(|other| other.trim() == row), "{row}");
    }
    assert_eq!(text("#notes li p")[0], "The timeline was sampled every 0.1 s of virtual time.");
}

#[test]
fn a_difference_beyond_noise_is_told_apart_from_one_within() {
    let records = common::made_up(3);
    let groups = common::groups(&records);
    let html = render(&page(&groups, &[])).unwrap();
    let document = Html::parse_document(&html);
    let of_row = |metric: &str| -> Vec<(String, String)> {
        let (rows, changes) = (select("#metrics tbody tr"), select("td.change"));
        let mut rows = document.select(&rows);
        let row = rows
            .find(|row| {
                let head = row.select(&select("th")).next().unwrap();
                head.text().collect::<String>().ends_with(metric)
            })
            .unwrap();
        let cells = row.select(&changes).map(|cell| {
            let of =
                |s: &str| cell.select(&select(s)).map(|e| e.text().collect::<String>()).collect();
            (of("b"), of(".verdict"))
        });
        cells.collect()
    };
    // The second variant takes 0.62 of the first one's system time, the third 1.08 of it.
    let system = of_row("System-30");
    assert!(system[0].0.starts_with("+3") && system[0].1 == "better", "{system:?}");
    assert!(system[1].0.starts_with('−') && system[1].1 == "worse", "{system:?}");
    let huge = of_row("Percentage huge");
    assert_eq!(huge[0], ("0.00\u{202f}%".to_owned(), String::new()));
}

#[test]
fn equal_records_give_equal_bytes() {
    let (first, second) = (common::made_up(2), common::made_up(2));
    let (a, b) = (common::groups(&first), common::groups(&second));
    assert_eq!(render(&page(&a, &[])).unwrap(), render(&page(&b, &[])).unwrap());
}

#[test]
fn runs_of_real_kernels_are_drawn_too() {
    let cases = common::cases();
    let groups = common::case_groups(&cases);
    let html = render(&page(&groups, &[])).unwrap();
    let document = check(&html, &groups);
    let titles: Vec<String> =
        document.select(&select(".row-title")).map(|e| e.text().collect::<String>()).collect();
    for title in ["Free memory MiB", "Pages scanned per second", "Free in node 1, zone DMA32 MiB"] {
        assert!(titles.iter().any(|other| other == title), "{title} in {titles:?}");
    }
    // These captures sampled no watermarks: the lines are those of zoneinfo before the run.
    let lines = select("figure[data-index=\"0\"] .area path.line.w-high");
    assert_eq!(document.select(&lines).count(), groups.len());
}

#[test]
fn memory_by_use_is_a_stack_whose_values_add_up_to_all_memory() {
    let mut records = common::made_up(1);
    records[0].truncate(1);
    let groups = common::groups(&records);
    let html = render(&page(&groups, &[])).unwrap();
    let document = check(&html, &groups);
    let rows = select(".row-title, figure.plot");
    let mut rows = document.select(&rows).skip_while(|element| {
        let text = element.text().collect::<String>();
        element.value().name() != "h4" || !text.starts_with("Memory by use")
    });
    let figure = rows.nth(1).expect("a plot below its title");
    let names = select(".keys .name");
    let names: Vec<String> = figure.select(&names).map(|name| name.text().collect()).collect();
    let parts = [
        ("slab, unreclaimable", "u-slab"),
        ("stacks, page tables", "u-kernel"),
        ("slab, reclaimable", "u-reclaimable"),
        ("anon, huge pages", "u-huge"),
        ("files", "u-file"),
        ("anon, base pages", "u-anon"),
        ("everything else", "u-rest"),
        ("free", "u-free"),
    ];
    assert_eq!(names, parts.map(|(name, _)| name));
    // Drawn from the top down, each over the lower part of the one before.
    let areas = select("path.area");
    let classes: Vec<&str> = figure.select(&areas).map(|a| a.attr("class").unwrap()).collect();
    let wanted = parts.map(|(_, class)| format!("area stack {class}"));
    assert_eq!(classes, wanted.iter().rev().collect::<Vec<_>>());

    let source = document
        .select(&select("script[type='application/json']"))
        .find(|script| script.attr("id") == figure.attr("data-source"))
        .expect("its values");
    let data: serde_json::Value = serde_json::from_str(&source.text().collect::<String>()).unwrap();
    let index: usize = figure.attr("data-index").unwrap().parse().unwrap();
    let lines = data["plots"][index].as_array().unwrap();
    let total = 4.0 * 1_040_000.0 * 1024.0;
    for sample in 0..data["x"].as_array().unwrap().len() {
        let sum: f64 = lines.iter().map(|line| line[sample].as_f64().unwrap()).sum();
        // Values are given to six digits.
        assert!((sum - total).abs() < 1e-5 * total, "{sum} at sample {sample}");
    }
}

#[test]
fn a_run_of_which_nothing_is_known_has_a_page() {
    let record = Record::new(Inputs::default());
    let groups = [Group { label: "unknown".into(), records: vec![&record] }];
    let html = render(&page(&groups, &[])).unwrap();
    let document = Html::parse_document(&html);
    assert_eq!(document.errors, Vec::<String>::new());
    assert!(document.select(&select("figure")).next().is_none());
    assert!(html.contains("No timeline was recorded."));
}

#[test]
fn maps_stand_with_their_runs_as_data() {
    let records = common::made_up(2);
    let groups = common::groups(&records);
    let runs = shown_runs(&groups);
    assert_eq!(runs.len(), 2 * common::THREADS.len());
    let svg = "<svg xmlns=\"http://www.w3.org/2000/svg\"/>";
    let maps = [
        Map { run: runs[0].identity(), description: "pages of \"a\"", image: Image::Svg(svg) },
        Map { run: runs[0].identity(), description: "over time", image: Image::Png(&PNG) },
        Map { run: runs[3].identity(), description: "pages of b", image: Image::Png(&PNG) },
    ];
    let html = render(&page(&groups, &maps)).unwrap();
    let document = check(&html, &groups);
    let found: Vec<(&str, &str)> = document
        .select(&select("figure.map img"))
        .map(|image| (image.attr("alt").unwrap(), image.attr("src").unwrap()))
        .collect();
    assert_eq!(
        found,
        [
            (
                "pages of \"a\"",
                "data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciLz4="
            ),
            ("over time", "data:image/png;base64,iVBORw0KGgo="),
            ("pages of b", "data:image/png;base64,iVBORw0KGgo="),
        ]
    );
}

#[test]
fn a_map_that_belongs_nowhere_and_a_page_of_nothing_are_refused() {
    let records = common::made_up(1);
    let groups = common::groups(&records);
    let image = Image::Png(&PNG);
    // The second seed of a step is not shown.
    let stray = records[0][1].identity();
    let maps = [Map { run: stray, description: "", image }];
    assert!(matches!(render(&page(&groups, &maps)), Err(PageError::StrayMap(run)) if run == stray));
    let shown = records[0][0].identity();
    let maps = [Map { run: shown, description: "", image }; 2];
    assert!(matches!(render(&page(&groups, &maps)), Err(PageError::MapTwice(run)) if run == shown));
    let empty = [Group { label: "a".into(), records: Vec::new() }];
    assert!(matches!(render(&page(&empty, &[])), Err(PageError::NoRuns)));
    assert!(matches!(render(&page(&[], &[])), Err(PageError::NoRuns)));
}
