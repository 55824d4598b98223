//! Links of the documentation lead to files and headings that exist, and every page is listed.

use super::{Page, all_pages, markdown, site_pages};
use crate::harness::repository;
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

const SOURCE: &str = "docs/src/";

/// Resolves `..` and `.` without looking at the disk.
fn normalized(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut whole, part| {
        match part {
            Component::ParentDir => drop(whole.pop()),
            Component::CurDir => {}
            part => whole.push(part),
        }
        whole
    })
}

/// Why a link of a page leads nowhere.
fn broken(page: &str, target: &str, anchors: &mut HashMap<PathBuf, Vec<String>>) -> Option<String> {
    if ["https://", "http://", "mailto:"].iter().any(|scheme| target.starts_with(scheme)) {
        return None;
    }
    let (file, fragment) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => PathBuf::from(page),
        file => normalized(&Path::new(page).parent().unwrap_or(Path::new("")).join(file)),
    };
    if page.starts_with(SOURCE) && !path.starts_with(SOURCE) {
        return Some("leads out of the site; name the file in backticks instead".into());
    }
    if !repository("").join(&path).exists() {
        return Some(format!("{} does not exist", path.display()));
    }
    if fragment.is_empty() {
        return None;
    }
    let known = anchors.entry(path.clone()).or_insert_with(|| markdown::anchors(&Page::read(&repository("").join(&path)).text));
    (!known.iter().any(|anchor| anchor == fragment)).then(|| format!("{} has no heading #{fragment}", path.display()))
}

#[test]
fn every_link_leads_somewhere() {
    let mut pages = all_pages();
    pages.push(Page::read(&repository("docs/src/llms.txt")));
    let (mut anchors, mut dead, mut count) = (HashMap::new(), Vec::new(), 0);
    for page in &pages {
        for (line, target) in markdown::links(&page.text) {
            count += 1;
            dead.extend(broken(&page.name, &target, &mut anchors).map(|why| format!("{}:{line}: {target}: {why}", page.name)));
        }
    }
    println!("{count} links of {} files", pages.len());
    assert!(dead.is_empty(), "{dead:#?}");
}

#[test]
fn every_page_is_in_the_summary_and_in_llms_txt() {
    for list in ["SUMMARY.md", "llms.txt"] {
        let text = Page::read(&repository(SOURCE).join(list)).text;
        let listed: Vec<String> = markdown::links(&text).into_iter().map(|(_, target)| target).collect();
        for page in site_pages() {
            let name = page.name.strip_prefix(SOURCE).expect("pages are in docs/src");
            let times = listed.iter().filter(|target| *target == name).count();
            let expected = usize::from(name != "SUMMARY.md");
            assert_eq!(times, expected, "docs/src/{list} lists {name} {times} times; it must list each page once");
        }
    }
}
