// What Python's jinja2, set up as transformers does it, makes of small templates.
#pragma once

#include <array>
#include <string_view>

namespace tutti::serve::chat::published {

constexpr std::string_view snippet_variables =
    R"json({"messages": [{"role": "user", "content": " Hi <b> "}, {"role": "assistant", "content": "x", "n": null}], "name": "World wide", "n": 7, "f": 2.5, "yes": true, "no": false, "nothing": null, "empty": [], "list": [3, 1, 2], "words": ["b", "A", "c"], "map": {"z": 1, "a": {"k": "v"}, "items": "own"}, "uni": "Zwölf 文字🦊"})json";

struct Snippet {
  std::string_view text;
  std::string_view expected;  // "refused" if there is an error
};

constexpr std::array<Snippet, 85> snippets{{
    {R"jinja({{ name }}|{{ n }}|{{ f }}|{{ yes }}|{{ nothing }}|{{ missing }}|{{ empty }}|{{ list }}|{{ map }})jinja",
     R"jinja(World wide|7|2.5|True|None||[]|[3, 1, 2]|{'z': 1, 'a': {'k': 'v'}, 'items': 'own'})jinja"},
    {R"jinja({{ 1 + 2 * 3 - 4 // 3 }} {{ 7 / 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 5 }} {{ 2 ** -1 }} {{ 1e0 if false else 1.0 }} {{ 1.5e2 }} {{ 1e-7 }})jinja",
     R"jinja(6 3.5 -4 2 32 0.5 1.0 150.0 1e-07)jinja"},
    {R"jinja({{ 'a' ~ 1 ~ none ~ true ~ missing ~ 2.0 }})jinja", R"jinja(a1NoneTrue2.0)jinja"},
    {R"jinja({{ 'a' * 3 }} {{ [1] * 2 + [2] }} {{ 3 * 'xy' }})jinja", R"jinja(aaa [1, 1, 2] xyxyxy)jinja"},
    {R"jinja({{ "esc\n\t\"\\\'\x41\u00e9" }} {{ 'it''s' }} {{ "a\qb" }})jinja",
     R"jinja(esc
	"\'Aé its a\qb)jinja"},
    {R"jinja({{ n > 5 and n < 10 }} {{ 1 < n < 5 }} {{ not yes }} {{ not not yes }} {{ yes or missing.x }} {{ no and missing.x }})jinja",
     R"jinja(True False False True True False)jinja"},
    {R"jinja({{ 0 or 'b' }} {{ '' or none }} {{ 1 and 2 }})jinja", R"jinja(b None 2)jinja"},
    {R"jinja({{ 'a' in 'cat' }} {{ 2 in list }} {{ 'z' in map }} {{ 5 not in list }} {{ 'q' in missing }} {{ not 'a' in 'b' }})jinja",
     R"jinja(True True True True False True)jinja"},
    {R"jinja({{ 'x' if no }}{{ 'y' if yes }}{{ 'a' if no else 'b' if no else 'c' }})jinja",
     R"jinja(yc)jinja"},
    {R"jinja({{ name[0] }} {{ name[-1] }} {{ name[1:4] }} {{ name[:-2] }} {{ name[::-1] }} {{ name[::2] }} {{ name[-3:] }} {{ name[9:1:-2] }} {{ name[100:] }} {{ name[-100:3] }})jinja",
     R"jinja(W e orl World wi ediw dlroW Wrdwd ide ei l  Wor)jinja"},
    {R"jinja({{ list[0] }} {{ list[-1] }} {{ list[1:] }} {{ list[::-1] }} {{ list[5] }} {{ list[-5] is defined }} {{ list[:100] }})jinja",
     R"jinja(3 2 [1, 2] [2, 1, 3]  False [3, 1, 2])jinja"},
    {R"jinja({{ uni[1] }} {{ uni[2] }} {{ uni|length }} {{ uni[6:] }} {{ uni[::-1] }})jinja",
     R"jinja(w ö 9 文字🦊 🦊字文 flöwZ)jinja"},
    {R"jinja({{ map.z }} {{ map['a'].k }} {{ map.a['k'] }} {{ map.missing is defined }} {{ map['q'] is undefined }} {{ nothing.x is defined }})jinja",
     R"jinja(1 v v False True False)jinja"},
    {R"jinja({{ map.items()|length }} {{ map.keys()|list }} {{ map.values()|list }} {{ map.get('z') }} {{ map.get('q') }} {{ map.get('q', 5) }} {{ map['items'] }})jinja",
     R"jinja(3 ['z', 'a', 'items'] [1, {'k': 'v'}, 'own'] 1 None 5 own)jinja"},
    {R"jinja({% for k, v in map.items() %}{{ k }}={{ v }};{% endfor %})jinja",
     R"jinja(z=1;a={'k': 'v'};items=own;)jinja"},
    {R"jinja({% for k in map %}{{ k }}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{% endfor %})jinja",
     R"jinja(z1032TrueFalse3a2121FalseFalse3items3210FalseTrue3)jinja"},
    {R"jinja({% for x in list %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{% endfor %})jinja",
     R"jinja(<3>1a3<1>2b1<2>a)jinja"},
    {R"jinja({% for x in list if x > 1 %}{{ x }}{{ loop.index }}{% else %}none{% endfor %}{% for x in empty %}x{% else %}none{% endfor %})jinja",
     R"jinja(3122none)jinja"},
    {R"jinja({% for x in 'a文b' %}[{{ x }}]{% endfor %}{% for x in missing %}x{% endfor %})jinja",
     R"jinja([a][文][b])jinja"},
    {R"jinja({% for x in range(5) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %})jinja",
     R"jinja(02)jinja"},
    {R"jinja({% for x in range(10, 0, -3) %}{{ x }} {% endfor %}{{ range(3)|list }})jinja",
     R"jinja(10 7 4 1 [0, 1, 2])jinja"},
    {R"jinja({% for a in list %}{% for b in list %}{{ loop.depth }}{% endfor %}{% endfor %})jinja",
     R"jinja(111111111)jinja"},
    {R"jinja({% set x = 1 %}{% for i in list %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }})jinja",
     R"jinja(2221)jinja"},
    {R"jinja({% set ns = namespace(a=1, b='q') %}{% for i in list %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }})jinja",
     R"jinja(7qFalse)jinja"},
    {R"jinja({% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t = (1, 2) %}{{ t[0] }}{{ t|length }})jinja",
     R"jinja(1212)jinja"},
    {R"jinja({% set x %}in {{ n }} block{% endset %}{{ x|upper }})jinja", R"jinja(IN 7 BLOCK)jinja"},
    {R"jinja({% if no %}a{% elif n == 7 %}b{% else %}c{% endif %}{% if nothing is none %}d{% endif %})jinja",
     R"jinja(bd)jinja"},
    {R"jinja({% macro greet(who, how='Hi', end='!') %}{{ how }} {{ who }}{{ end }}{% endmacro %}{{ greet('Bob') }}{{ greet('Al', end='?') }}{{ greet(how='Yo', who=n) }})jinja",
     R"jinja(Hi Bob!Hi Al?Yo 7!)jinja"},
    {R"jinja({% macro fact(x) %}{% if x < 2 %}1{% else %}{{ x * fact(x - 1)|int }}{% endif %}{% endmacro %}{{ fact(5) }})jinja",
     R"jinja(120)jinja"},
    {R"jinja({% set top = 5 %}{% macro m() %}{{ top }}{{ inner is defined }}{% endmacro %}{% for inner in [1] %}{{ m() }}{% endfor %})jinja",
     R"jinja(5False)jinja"},
    {R"jinja({{ '  x y '|trim }}|{{ 'xxaxx'|trim('x') }}|{{ name|upper|lower|title }}|{{ 'hELLO wORLD'|capitalize }})jinja",
     R"jinja(x y|a|World Wide|Hello world)jinja"},
    {R"jinja({{ list|length }} {{ map|length }} {{ name|count }} {{ words|join }} {{ words|join(', ') }} {{ list|join('-') }})jinja",
     R"jinja(3 3 10 bAc b, A, c 3-1-2)jinja"},
    {R"jinja({{ list|first }} {{ list|last }} {{ list|sort }} {{ words|sort }} {{ list|sort(reverse=true) }} {{ list|reverse|list }} {{ list|sum }} {{ list|max }} {{ list|min }} {{ [1,1,2]|unique|list }})jinja",
     R"jinja(3 2 [1, 2, 3] ['A', 'b', 'c'] [3, 2, 1] [2, 1, 3] 6 3 1 [1, 2])jinja"},
    {R"jinja({{ missing|default('d') }} {{ ''|default('d') }} {{ ''|default('d', true) }} {{ nothing|default('d') }} {{ nothing|d('x', boolean=true) }} {{ missing|default }})jinja",
     R"jinja(d  d None x )jinja"},
    {R"jinja({{ messages|map(attribute='role')|list }} {{ messages|map(attribute='role')|join(',') }} {{ words|map('upper')|list }} {{ words|map('replace', 'b', 'q')|join }})jinja",
     R"jinja(['user', 'assistant'] user,assistant ['B', 'A', 'C'] qAc)jinja"},
    {R"jinja({{ messages|selectattr('role', 'equalto', 'user')|list|length }} {{ messages|rejectattr('role', 'eq', 'user')|map(attribute='content')|first }} {{ messages|selectattr('n', 'defined')|list|length }} {{ messages|selectattr('content')|list|length }})jinja",
     R"jinja(1 x 1 2)jinja"},
    {R"jinja({{ list|select('odd')|list }} {{ list|reject('equalto', 1)|list }} {{ [0,1,'']|select|list }} {{ list|select('gt', 1)|list }} {{ list|select('in', [1,2])|list }})jinja",
     R"jinja([3, 1] [3, 2] [1] [3, 2] [1, 2])jinja"},
    {R"jinja({{ map|tojson }} {{ uni|tojson }} {{ "a\"b\n</>"|tojson }} {{ [1, 2.0, none, true, 1e0 if no else 1e0 if no else 0.5]|tojson }} {{ nothing|tojson }})jinja",
     R"jinja({"z": 1, "a": {"k": "v"}, "items": "own"} "Zwölf 文字🦊" "a\"b\n</>" [1, 2.0, null, true, 0.5] null)jinja"},
    {R"jinja({{ map|tojson(indent=2) }} {{ []|tojson(indent=2) }} {{ {}|tojson }} {{ [[]]|tojson(indent=1) }})jinja",
     R"jinja({
  "z": 1,
  "a": {
    "k": "v"
  },
  "items": "own"
} [] {} [
 []
])jinja"},
    {R"jinja({{ {'b': 1, 'a': 2}|tojson(sort_keys=true) }} {{ {'b': 1}|tojson(separators=(',', ':')) }} {{ uni|tojson(ensure_ascii=true) }})jinja",
     R"jinja({"a": 2, "b": 1} {"b":1} "Zw\u00f6lf \u6587\u5b57\ud83e\udd8a")jinja"},
    {R"jinja({{ (map|items|list)[0][1] }} {{ ({'b': 1, 'A': 2}|dictsort)[0][0] }} {{ map|dictsort|first|first }})jinja",
     R"jinja(1 A a)jinja"},
    {R"jinja({{ '42'|int + 1 }} {{ 'x'|int }} {{ 'x'|int(9) }} {{ 2.9|int }} {{ '1.5'|float }} {{ 3|float }} {{ -3|abs }} {{ 2.567|round(1) }} {{ 7|string + '!' }})jinja",
     R"jinja(43 0 9 2 1.5 3.0 3 2.6 7!)jinja"},
    {R"jinja({{ 'a\nb\n\nc'|indent }}|{{ 'a\nb'|indent(2, true) }}|{{ 'a\nb'|indent('> ') }})jinja",
     R"jinja(a
    b

    c|  a
  b|a
> b)jinja"},
    {R"jinja({{ 'abcabc'|replace('b', 'X') }} {{ 'aaa'|replace('a', 'b', 2) }} {{ 'ab'.replace('', '-') }} {{ 'x'|safe }})jinja",
     R"jinja(aXcaXc bba -a-b- x)jinja"},
    {R"jinja({{ '  a '.strip() }}|{{ ' a '.lstrip() }}|{{ ' a '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ '\n\na\n'.lstrip('\n') }}|{{ '\u00a0\u3000x\u3000'.strip() }})jinja",
     R"jinja(a|a | a|a|a
|x)jinja"},
    {R"jinja({{ 'a b  c'.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a--b'.split('--')[-1] }} {{ ' a b c '.split(none, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ 'a\nb\r\nc'.splitlines() }})jinja",
     R"jinja(['a', 'b', 'c'] ['a', 'b', '', 'c'] ['a', 'b,c'] b ['a', 'b c '] ['a,b', 'c'] ['a', 'b', 'c'])jinja"},
    {R"jinja({{ name.startswith('Wo') }} {{ name.endswith('x') }} {{ name.startswith(('a', 'W')) }} {{ name.upper() }} {{ name.lower() }} {{ 'they are'.title() }} {{ name.find('r') }} {{ uni.find('字') }} {{ name.find('q') }} {{ name.rfind('w') }} {{ 'aXbX'.count('X') }})jinja",
     R"jinja(True False True WORLD WIDE world wide They Are 2 7 -1 6 2)jinja"},
    {R"jinja({{ ', '.join(words) }} {{ '12'.isdigit() }} {{ ''.isdigit() }} {{ ' '.isspace() }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ 'AB'.isupper() }} {{ 'Ab'.islower() }} {{ [1,2,1].count(1) }} {{ [1,2].index(2) }})jinja",
     R"jinja(b, A, c True False True bc ab True False 2 1)jinja"},
    {R"jinja({{ name is string }} {{ n is number }} {{ n is integer }} {{ f is float }} {{ yes is boolean }} {{ yes is true }} {{ no is false }} {{ map is mapping }} {{ list is iterable }} {{ list is sequence }} {{ name is iterable }} {{ n is iterable }} {{ nothing is iterable }} {{ missing is iterable }} {{ yes is number }} {{ yes is integer }})jinja", R"jinja(True True True True True True True True True True True False False True True False)jinja"},
    {R"jinja({{ n is odd }} {{ n is even }} {{ n is divisibleby 7 }} {{ n is divisibleby(3) }} {{ n is eq 7 }} {{ n is sameas 7 }} {{ n is gt 3 }} {{ n is not none }} {{ 1 is in [1] }} {{ n is defined and name is not undefined }} {{ 'a' is lower }} {{ range is callable }} {{ strftime_now is defined }})jinja",
     R"jinja(True False True False True True True True True True True True True)jinja"},
    {R"jinja({{ n == 7.0 }} {{ [1,2] == [1,2] }} {{ {'a':1} == {'a':1.0} }} {{ 'a' == 1 }} {{ none == false }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1,2] < [1,3] }} {{ messages[0] == messages[0] }})jinja",
     R"jinja(True True True False False True True True True)jinja"},
    {R"jinja(  {% if yes %}
    text
  {% endif %}
end)jinja",
     R"jinja(    text
end)jinja"},
    {R"jinja(a {%- if yes -%} b {%- endif -%} c)jinja", R"jinja(abc)jinja"},
    {R"jinja(a {{- ' b ' -}} c {{ 'd' }})jinja", R"jinja(a b c d)jinja"},
    {R"jinja(x
{#- comment -#}
y {# other #}
z)jinja",
     R"jinja(xy z)jinja"},
    {R"jinja({% raw %}{{ not }} {% x %}{% endraw %}!)jinja", R"jinja({{ not }} {% x %}!)jinja"},
    {R"jinja(  {%+ if yes %}kept{% endif +%}
end)jinja",
     R"jinja(  kept
end)jinja"},
    {R"jinja({% generation %}inside{% endgeneration %})jinja", R"jinja(inside)jinja"},
    {R"jinja({{ strftime_now('%d %b %Y %B %A %a %H:%M:%S %I %p %j %y %m %% %-d') }})jinja",
     R"jinja(05 Nov 2026 November Thursday Thu 14:07:09 02 PM 309 26 11 % 5)jinja"},
    {R"jinja({{ 'a' 'b' }} {{ (1,)[0] }} {{ [] }} {{ {} }} {{ {'a': [1, {'b': none}]} }} {{ "it's" }} {{ ["it's", 'q"', "b\n"] }})jinja",
     R"jinja(ab 1 [] {} {'a': [1, {'b': None}]} it's ["it's", 'q"', 'b\n'])jinja"},
    {R"jinja({{ -n }} {{ +n }} {{ - 3 + 5 }} {{ (1 + 2) * 3 }} {{ 10 - 2 - 3 }} {{ 2 * 3 % 4 }} {{ 1 ~ 2 ~ 3 }} {{ 'a' + 'b' ~ 'c' }})jinja",
     R"jinja(-7 7 2 9 5 2 123 abc)jinja"},
    {R"jinja({{ 1.0 }} {{ 100000000000000000.0 }} {{ 0.00001 }} {{ 1.5 + 1 }} {{ 3.0 // 2 }} {{ 5 % 3.0 }} {{ 1_000 }})jinja",
     R"jinja(1.0 1e+17 1e-05 2.5 1.0 2.0 1000)jinja"},
    {R"jinja({{ 'x' | default('y') | upper ~ 'z' }} {{ (name | length) + 1 }} {{ name | length + 1 }} {{ not name | length == 0 }})jinja",
     R"jinja(Xz 11 11 True)jinja"},
    {R"jinja({{ messages[0]['content'] | trim + '!' }} {{ (messages | last).role }} {{ messages[-1:][0].role }} {{ messages|length - 1 }})jinja",
     R"jinja(Hi <b>! assistant assistant 1)jinja"},
    {R"jinja({%- set x = 'a' -%}
{{ x }}

{{ x }})jinja",
     R"jinja(a

a)jinja"},
    {R"jinja({% for m in messages %}
{{ m.role }}
{% endfor %})jinja",
     R"jinja(user
assistant
)jinja"},
    {R"jinja({{ missing.x }})jinja", R"jinja(refused)jinja"},
    {R"jinja({{ 'a' + 1 }})jinja", R"jinja(refused)jinja"},
    {R"jinja({{ 'a' + missing }})jinja", R"jinja(refused)jinja"},
    {R"jinja({{ none + 'a' }})jinja", R"jinja(refused)jinja"},
    {R"jinja({{ 1 / 0 }})jinja", R"jinja(refused)jinja"},
    {R"jinja({{ raise_exception('no') }})jinja", R"jinja(refused)jinja"},
    {R"jinja({{ n|nofilter }})jinja", R"jinja(refused)jinja"},
    {R"jinja({{ 'a'.nomethod() }})jinja", R"jinja(refused)jinja"},
    {R"jinja({{ nofunction() }})jinja", R"jinja(refused)jinja"},
    {R"jinja({{ n() }})jinja", R"jinja(refused)jinja"},
    {R"jinja({{ [1] < 'a' }})jinja", R"jinja(refused)jinja"},
    {R"jinja({{ n.x }}|{{ name.x }}|{{ n['x'] }})jinja", R"jinja(||)jinja"},
    {R"jinja({% for a, b in [[1, 2], [3, 4]] %}{{ a + b }}{% endfor %})jinja", R"jinja(37)jinja"},
    {R"jinja({% for a, b in [[1, 2], [3]] %}{{ a }}{% endfor %})jinja", R"jinja(refused)jinja"},
    {R"jinja({% set n.x = 1 %})jinja", R"jinja(refused)jinja"},
    {R"jinja({{ dict(a=1, b=2) }} {{ dict({'a': 1}, a=3) }})jinja", R"jinja({'a': 1, 'b': 2} {'a': 3})jinja"},
    {R"jinja({% for x in n %}{% endfor %})jinja", R"jinja(refused)jinja"},
    {R"jinja({{ n|length }})jinja", R"jinja(refused)jinja"},
    {R"jinja({{ missing|length }} {{ missing|list }} {{ missing|join(',') }} {{ missing|upper }}x {{ missing == missing }} {{ missing == none }})jinja",
     R"jinja(0 []  x True False)jinja"},
}};

}  // namespace tutti::serve::chat::published
