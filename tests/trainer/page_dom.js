/* SPDX-License-Identifier: BSD-3-Clause
 *
 * node page_dom.js PAGE - runs the script of a report on elements that only
 * remember what they were given, and prints what it drew as XML. A fact that
 * the page asks for and does not have is an error, and so is text that is no
 * text (undefined, an object) and an attribute that is no number (NaN).
 */
"use strict";
const fs = require("fs");
const vm = require("vm");

const text = fs.readFileSync(process.argv[2], "utf8");
const scripts = Array.from(
    text.matchAll(/<script([^>]*)>([^]*?)<\/script>/g));
if (scripts.length !== 2) {
    throw new Error(scripts.length + " scripts");
}
const escape = (value) => value.replace(/[&<>"]/g,
    (sign) => "&#" + sign.charCodeAt(0) + ";");

class Element {
    constructor(name) {
        this.name = name;
        this.attributes = "";
        this.children = [];
    }

    setAttribute(name, value) {
        const said = String(value);
        if (/\b(NaN|undefined|Infinity|null)\b|\[object/.test(said)) {
            throw new Error(`${this.name} ${name}="${said}"`);
        }
        this.attributes += ` ${name}="${escape(said)}"`;
    }

    append(...children) {
        for (const child of children) {
            if (typeof child !== "string" && !(child instanceof Element)) {
                throw new Error(`${child} in ${this.name}`);
            }
            this.children.push(child);
        }
    }

    addEventListener(name, call) {
        call(); /* somebody looks */
    }

    print() {
        const inside = this.children.map((child) =>
            typeof child === "string" ? escape(child) : child.print()).join("");
        return `<${this.name}${this.attributes}>${inside}</${this.name}>\n`;
    }
}

/* Of which every name that is asked for must be there. */
function strict(value, path) {
    if (value === null || typeof value !== "object") {
        return value;
    }
    return new Proxy(value, {get(target, name) {
        const past = Array.isArray(target) && /^-?\d+$/.test(String(name));
        if (typeof name === "string" && !past && !(name in target)) {
            throw new Error(`${path}.${name} is not there`);
        }
        return strict(target[name], `${path}.${String(name)}`);
    }});
}

const page = new Element("main");
const facts = new Element("script");
facts.textContent = scripts[0][2];
const document = {
    title: "",
    createElement: (name) => new Element(name),
    createElementNS: (space, name) => new Element(name),
    getElementById: (id) => ({page, "weft-report": facts})[id],
};
vm.runInNewContext(scripts[1][2], {document,
    JSON: {parse: (said) => strict(JSON.parse(said), "facts")}},
{timeout: 20000});
process.stdout.write(`<html><title>${escape(document.title)}</title>\n` +
    page.print() + "</html>\n");
