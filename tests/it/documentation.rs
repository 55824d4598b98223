//! The documentation that the server serves.

use crate::harness::{Client, Process, repository, start_local};
use std::collections::BTreeSet;

async fn text(client: &Client, path: &str) -> String {
    let answer = client.get(path).await;
    assert_eq!(answer.status, 200, "{path}");
    String::from_utf8(answer.body).unwrap()
}

#[tokio::test]
async fn a_page_is_html_with_anchors_links_to_other_pages_and_the_list_of_all() {
    let client = start_local().await;
    let start = client.get("/docs").await;
    assert_eq!(start.headers["content-type"], "text/html; charset=utf-8");
    let policy = start.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    let start = String::from_utf8(start.body).unwrap();
    assert!(start.contains("<title>The start · Proscenium</title>"), "{start}");
    assert!(start.contains("<a href=\"/docs/guides/ask#how-to-ask-twice\">how to ask</a> &amp; the code."), "{start}");
    assert!(start.contains("<a aria-current=\"page\" href=\"/docs/\">The start</a>"), "{start}");
    let ask = text(&client, "/docs/guides/ask").await;
    assert!(ask.contains("<h2 id=\"how-to-ask-twice\">") && ask.contains("<h2 id=\"how-to-ask-twice-1\">"), "{ask}");
    assert!(ask.contains("<code id=\"no_such_run\">no_such_run</code>"), "{ask}");
    let picture = "<picture><source srcset=\"/docs/pictures/card-dark.png\" media=\"(prefers-color-scheme: dark)\"><img \
                   src=\"/docs/pictures/card.png\" alt=\"A &quot;card&quot;\" width=\"1600\" height=\"1000\" loading=\"lazy\"></picture>";
    assert!(ask.contains(picture), "{ask}");
    assert!(ask.contains("Picture: Never") && !ask.contains("never.png"), "{ask}");
    assert!(ask.contains("<a href=\"/docs/\">back</a> <a href=\"https://example.com\">out</a>"), "{ask}");
    assert!(ask.contains("<a aria-current=\"page\" href=\"/docs/guides/ask\">Ask</a>"), "{ask}");
}

#[tokio::test]
async fn a_picture_of_a_page_has_its_type_and_is_read_once() {
    let client = start_local().await;
    for (name, kind) in [("card.png", "image/png"), ("growth.svg", "image/svg+xml")] {
        let picture = client.get(&format!("/docs/pictures/{name}")).await;
        assert_eq!((picture.status, picture.headers["content-type"].to_str().unwrap()), (200, kind));
        let known = client
            .get_with(&format!("/docs/pictures/{name}"), &[("if-none-match", picture.headers["etag"].to_str().unwrap())])
            .await;
        assert_eq!((known.status, known.body.len()), (304, 0));
    }
    client.get("/docs/pictures/never.png").await.problem(404, "no_such_page");
}

#[tokio::test]
async fn programs_read_a_list_of_pages_and_their_markdown() {
    let client = start_local().await;
    let list = client.get("/llms.txt").await;
    assert_eq!(list.headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(list.body, b"# Test\n\n- [The start](/docs/index.md): all\n- [Out](https://example.com): else\n");
    let page = client.get("/docs/guides/ask.md").await;
    assert_eq!(page.headers["content-type"], "text/markdown; charset=utf-8");
    assert!(page.body.starts_with(b"# Ask <b>\n"));
    let known = client.get_with("/docs/guides/ask.md", &[("if-none-match", page.headers["etag"].to_str().unwrap())]).await;
    assert_eq!((known.status, known.body.len()), (304, 0));
}

#[tokio::test]
async fn what_is_no_page_is_named() {
    let client = start_local().await;
    for path in ["never", "SUMMARY", "guides", "guides/ask.html", "../index.md", "..%2findex.md", "index.md/", "%3Cscript%3E"] {
        let problem = client.get(&format!("/docs/{path}")).await;
        assert!([200, 404].contains(&problem.status), "{path}: {problem:?}");
        if problem.status == 404 && problem.headers["content-type"] == "application/problem+json" {
            assert!(["no_such_page", "no_such_address"].contains(&problem.json()["code"].as_str().unwrap()), "{path}");
        }
    }
    client.get("/docs/never").await.problem(404, "no_such_page");
}

/// The files of the documentation.
fn files() -> BTreeSet<String> {
    let root = repository("docs/src");
    let found = crate::harness::files_below(&root).into_keys();
    let names = found.map(|path| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
    names.filter(|name| name.contains(".md") || name == "llms.txt").collect()
}

#[tokio::test]
async fn the_binary_serves_each_page_and_each_link_within_them_leads_somewhere() {
    let server = Process::start();
    let client = Client::new(server.at);
    let mut pages = BTreeSet::new();
    for file in files() {
        if file == "SUMMARY.md" || file == "llms.txt" {
            continue;
        }
        let raw = client.get(&format!("/docs/{file}")).await;
        assert_eq!(raw.status, 200, "{file} is missing in src/cli/documentation.rs");
        assert!(raw.body == std::fs::read(repository("docs/src").join(&file)).unwrap(), "{file} is another one");
        let name = file.strip_suffix(".md").unwrap();
        pages.insert(if name == "index" { "/docs/".to_owned() } else { format!("/docs/{name}") });
    }
    for page in &pages {
        let html = text(&client, page).await;
        for link in html.split("href=\"/docs/").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let to = format!("/docs/{path}");
            assert!(pages.contains(&to) || path.contains(".md"), "{page} links to {link}");
            if !anchor.is_empty() {
                let target = text(&client, &to).await;
                assert!(target.contains(&format!("id=\"{anchor}\"")), "{page} links to {link}");
            }
        }
    }
    let (mut shown, mut bytes) = (BTreeSet::new(), 0);
    for page in &pages {
        let html = text(&client, page).await;
        assert!(!html.contains("Picture: "), "{page} shows a picture that is missing in src/cli/documentation.rs");
        for address in html.split("<img src=\"").skip(1).chain(html.split("<source srcset=\"").skip(1)) {
            shown.insert(address.split('"').next().unwrap().to_owned());
        }
    }
    for address in &shown {
        let picture = client.get(address).await;
        assert_eq!(picture.status, 200, "{address}");
        bytes += picture.body.len();
    }
    assert!(shown.len() >= 25 && bytes < 1_700_000, "{} pictures of {bytes} bytes", shown.len());
    let list = text(&client, "/llms.txt").await;
    for link in list.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
        assert_eq!(client.get(link).await.status, 200, "{link}");
    }
}

#[tokio::test]
async fn the_type_of_every_problem_is_the_place_that_explains_it() {
    let server = Process::start();
    let client = Client::new(server.at);
    let problem = client.get("/v1/runs/never").await.problem(404, "no_such_run");
    assert_eq!(problem["type"], "/docs/reference/problems#no_such_run");
    let page = text(&client, "/docs/reference/problems").await;
    for kind in proscenium::serve::contract::kinds::KINDS {
        assert!(page.contains(&format!("id=\"{}\"", kind.code)), "{} has no row", kind.code);
    }
}
