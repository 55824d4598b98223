//! The bundles of the page: `bundle.rs`, which the build uses.

#[path = "../../bundle.rs"]
mod bundle;

use bundle::{Sources, bundle, minify, minify_css};

#[test]
fn a_script_loses_comments_and_white_space_and_keeps_its_meaning() {
    for (script, expected) in [
        ("const a = 1; // one\nconst b = 2;", "const a=1;const b=2;"),
        ("/** A\n * comment. */\nconst a = /* b */ c;", "const a=c;"),
        ("return a\n", "return a"),
        ("a\nb\n;c", "a\nb;c"),
        ("x = a + +b - -c;", "x=a+ +b- -c;"),
        ("if (a) return /[/\"]'/g.test(b) / 2;", "if(a)return /[/\"]'/g.test(b) / 2;"),
        ("`  a  ${ b + `${ { c } }` }  // d`", "`  a  ${b+`${{c}}`}  // d`"),
        ("'a \\' // b'", "'a \\' // b'"),
        ("for (const x of [1])\n  y();", "for(const x of[1])\ny();"),
        ("class A {\n  #b = 1;\n  get c() { return #b in this; }\n}\nd();", "class A{#b=1;get c(){return #b in this;}}\nd();"),
    ] {
        assert_eq!(minify(script), expected);
    }
}

#[test]
fn a_style_sheet_loses_comments_and_white_space_and_keeps_its_meaning() {
    let sheet =
        "/* A */\n.a > .b :hover, .c {\n  margin: 0 1px;\n  content: \" /* ; \";\n}\n@media (width < 9px) { .d { top: 0 } }\n";
    assert_eq!(minify_css(sheet), ".a > .b :hover,.c{margin: 0 1px;content: \" /* ; \"}@media (width < 9px){.d{top: 0}}");
}

/// Bundles modules whose page is `app.js`.
fn bundled(modules: &[(&'static str, &str)]) -> Vec<(String, String)> {
    let sources: Sources = modules.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
    bundle(&sources, &["app.js"]).into_iter().collect()
}

#[test]
fn each_module_is_in_one_chunk_and_other_chunks_import_it() {
    let chunks = bundled(&[
        ("app.js", "import { a } from \"./lib/a.js\";\nconst later = () => import(\"./lib/b.js\");\nlater(a);\n"),
        ("lib/a.js", "export const a = 1;\nexport async function c() {}\nconst d = 2;\nexport { d as e };\n"),
        ("lib/b.js", "import { a as other } from \"./a.js\";\nimport \"../vendor/v.js\";\nexport class B { a = other; }\n"),
        ("vendor/v.js", "/* v 1.0 */\nvar a=1;export{a as one};\n"),
    ]);
    let names: Vec<&str> = chunks.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["app.js", "lib/b.js"]);
    assert_eq!(
        chunks[0].1,
        "const $1=(()=>{const a=1;async function c(){}const d=2;\nreturn{a,b:c,c:d}})();\n\
         const $0=(()=>{const{a}=$1;const b=()=>import(\"./lib/b.js\").then(chunk=>chunk.$2);b(a);\nreturn{}})();\n\
         export{$1,$0};\n"
            .replace("async function c(){}const", "async function c(){}\nconst")
    );
    assert_eq!(
        chunks[1].1,
        "/* Contains modules of other projects: see vendor/LICENCES.txt. */\n\
         import{$1}from\"../app.js\";\n\
         const $3=(()=>{var a=1;\nreturn{a}})();\n\
         const $2=(()=>{const{a}=$1;class B{a=a;}\nreturn{B}})();\n\
         export{$3,$2};\n"
    );
}

#[test]
fn a_style_sheet_is_a_module_with_its_text() {
    let chunks = bundled(&[
        ("app.js", "import sheet from \"./a.css\";\nuse(sheet);\n"),
        ("a.css", "/* One */\n.a::before { content: \"\\201c\"; }\n"),
    ]);
    assert_eq!(
        chunks[0].1,
        "const $0=(()=>{const css=\".a::before{content: \\\"\\\\201c\\\"}\";\nreturn{a:css}})();\n\
         const $1=(()=>{const{a}=$0;use(a);\nreturn{}})();\n\
         export{$0,$1};\n"
    );
}

#[test]
fn private_members_have_short_names() {
    let chunks = bundled(&[(
        "app.js",
        "export class A {\n  #once = 1;\n  #often = \"#often\";\n  is(one) {\n    return #often in one && `${this.#often} #often ${this.#once}`;\n  }\n}\n",
    )]);
    assert_eq!(
        chunks[0].1,
        "const $0=(()=>{class A{#b=1;#a=\"#often\";is(a){return #a in a&&`${this.#a} #often ${this.#b}`;}}\nreturn{A}})();\nexport{$0};\nexport const{A}=$0;\n"
    );
}

#[test]
fn declared_names_become_short_and_members_and_names_of_the_browser_stay() {
    let module = "import { one, two as other } from \"./b.js\";\n\
        const fetched = await fetch(location.href);\n\
        function add({ left, right: rest = one }, [first, ...more], width = document.body) {\n\
          const { length } = more;\n\
          for (const [key, value] of Object.entries({ left, other })) first(key, value.left, fetched);\n\
          return { left, rest: rest, length, add(more) { return more; }, get first() { return width ? rest : left; } };\n\
        }\n\
        class Counter extends HTMLElement {\n\
          total = other;\n\
          left = (item) => ({ ...item, left: `${item.left} ${this.total}` });\n\
          get rest() { return add(this.left, [location]); }\n\
        }\n\
        new Counter(({ name: label }) => { switch (label) { case other: { return add; } default: return label; } });\n";
    let chunks = bundled(&[("app.js", module), ("b.js", "export const one = 1;\nexport const two = 2;\n")]);
    assert_eq!(
        chunks[0].1,
        "const $1=(()=>{const a=1;const b=2;\nreturn{a,b}})();\n\
         const $0=(()=>{const{a:m,b:c}=$1;const i=await fetch(location.href);\
         function d({left:a,right:g=m},[j,...b],o=document.body){const{length:l}=b;\
         for(const[k,n]of Object.entries({left:a,other:c}))j(k,n.left,i);\
         return{left:a,rest:g,length:l,add(b){return b;},get first(){return o?g:a;}};}\n\
         class h extends HTMLElement{total=c;left=(e)=>({...e,left:`${e.left} ${this.total}`});\
         get rest(){return d(this.left,[location]);}}\n\
         new h(({name:f})=>{switch(f){case c:{return d;}default:return f;}});\n\
         return{}})();\nexport{$1,$0};\n"
    );
}

#[test]
fn the_first_entry_exports_its_names() {
    let chunks = bundled(&[("app.js", "const a = 1;\nexport { a as one };\n")]);
    assert_eq!(chunks[0].1, "const $0=(()=>{const a=1;\nreturn{one:a}})();\nexport{$0};\nexport const{one}=$0;\n");
}

#[test]
fn modules_that_several_parts_need_are_a_chunk_of_their_own() {
    let chunks = bundled(&[
        ("app.js", "import(\"./b.js\");\nimport(\"./c.js\");\n"),
        ("b.js", "import { d } from \"./d.js\";\nd();\n"),
        ("c.js", "import { d } from \"./d.js\";\nd();\n"),
        ("d.js", "export function d() {}\n"),
    ]);
    let names: Vec<&str> = chunks.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["app.js", "b.js", "c.js", "d.js"]);
    assert!(chunks[1].1.starts_with("import{$3}from\"./d.js\";"), "{}", chunks[1].1);
}

#[test]
#[should_panic(expected = "modules import each other")]
fn modules_that_import_each_other_are_refused() {
    bundled(&[
        ("app.js", "import { b } from \"./b.js\";\nexport const a = 1;\n"),
        ("b.js", "import { a } from \"./app.js\";\nexport const b = a;\n"),
    ]);
}

#[test]
fn a_module_may_load_one_that_imports_it() {
    let chunks = bundled(&[
        ("app.js", "import { load } from \"./lazy.js\";\nload();\n"),
        ("lazy.js", "export const load = () => import(\"./b.js\");\n"),
        ("b.js", "import { load } from \"./lazy.js\";\nexport const b = load;\n"),
    ]);
    assert_eq!(chunks.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["app.js", "b.js"]);
}

#[test]
#[should_panic(expected = "exports by a form that the bundler does not know")]
fn an_unknown_form_of_export_is_refused() {
    bundled(&[("app.js", "export let a = 1;\n")]);
}
