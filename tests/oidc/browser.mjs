// What a person does in a browser, for a test: node browser.mjs URL USER follows where it is sent, fills in each form and
// sends it, until a page has none. Prints the last page.
const [start, user] = process.argv.slice(2);
const cookies = new Map();
const pages_max = 20;

const attribute = (tag, name) => tag.match(new RegExp(`\\b${name}="([^"]*)"`, 'i'))?.[1];
const plain = (text) => text?.replaceAll('&amp;', '&').replaceAll('&quot;', '"').replaceAll('&#39;', "'");

let url = new URL(start);
let ask = { method: 'GET' };
for (let page = 0; page < pages_max; ++page) {
  const jar = cookies.get(url.host) ?? new Map();
  cookies.set(url.host, jar);
  const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join('; ');
  const answer = await fetch(url, { ...ask, redirect: 'manual', headers: { ...ask.headers, cookie } });
  for (const line of answer.headers.getSetCookie()) {
    const [, name, value] = line.match(/^([^=]+)=([^;]*)/);
    jar.set(name, value);
  }
  const location = answer.headers.get('location');
  if (location) {
    url = new URL(location, url);
    ask = { method: 'GET' };
    continue;
  }
  const text = await answer.text();
  const form = text.match(/<form[\s\S]*?<\/form>/i)?.[0];
  if (!form) {
    console.log(`${answer.status} ${text}`);
    process.exit(0);
  }
  const fields = new URLSearchParams();
  for (const [input] of form.matchAll(/<input[^>]*>/gi)) {
    const name = attribute(input, 'name');
    if (name) fields.append(name, name === 'login' ? user : plain(attribute(input, 'value')) ?? 'any');
  }
  url = new URL(plain(attribute(form, 'action')) ?? url.href, url);
  ask = { method: 'POST', body: fields.toString(), headers: { 'content-type': 'application/x-www-form-urlencoded' } };
}
console.error('it never came to an end');
process.exit(1);
