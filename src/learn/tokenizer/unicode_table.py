"""Writes unicode_table.cpp and nfc_table.cpp from Python's own Unicode data. Run it here."""

import sys
import textwrap
import unicodedata

COLUMNS = 110
HANGUL = range(0xAC00, 0xD7A4)  # composed by arithmetic, not by a table


def ranges(value_of):
    """The runs of code points with the same value that is not 0: first, last, value."""
    found = []
    for code in range(sys.maxunicode + 1):
        value = value_of(chr(code))
        if value and found and found[-1][1:] == [code - 1, value]:
            found[-1][1] = code
        elif value:
            found.append([code, code, value])
    return found


def category(wanted):
    return [run[:2] for run in ranges(lambda letter: unicodedata.category(letter)[0] == wanted)]


def decompositions():
    """The code points that stand for others: code, others."""
    found = []
    for code in range(sys.maxunicode + 1):
        parts = unicodedata.decomposition(chr(code)).split()
        if parts and not parts[0].startswith("<") and code not in HANGUL:
            found.append([code] + [int(part, 16) for part in parts])
    return found


def stays_apart(code, *parts):
    return unicodedata.normalize("NFC", "".join(map(chr, parts))) != chr(code)


def packed(rows):
    """As many rows on a line as fit; those of several numbers in braces."""
    texts = [",@".join(f"0x{cell:X}" for cell in row) for row in rows]
    joined = ", ".join(text if "@" not in text else "{" + text + "}" for text in texts)
    return textwrap.fill(joined, COLUMNS - 4).replace("@", " ")


def write(path, tables):
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"// Written by unicode_table.py from Unicode {unicodedata.unidata_version}.\n")
        out.write(f'#include "tokenizer/{path.replace(".cpp", ".hpp")}"\n\n')
        out.write("namespace tutti::tokenizer {\nnamespace {\n\n// clang-format off\n")
        for kind, name, rows in tables:
            out.write(f"constexpr {kind} {name}_table[] = {{\n{textwrap.indent(packed(rows), '    ')}}};\n\n")
        out.write("// clang-format on\n}  // namespace\n\n")
        for kind, name, _ in tables:
            out.write(f"const std::span<const {kind}> {name}({name}_table);\n")
        out.write("\n}  // namespace tutti::tokenizer\n")


def main():
    write("unicode_table.cpp", [("CodeRange", "letters", category("L")), ("CodeRange", "numbers", category("N"))])
    found = decompositions()
    write("nfc_table.cpp",
          [("CombiningRange", "combining_ranges", ranges(unicodedata.combining)),
           ("Replacement", "replacements", [each for each in found if len(each) == 2]),
           ("Composition", "compositions", [each for each in found if len(each) == 3]),
           ("char32_t", "never_composed", [each[:1] for each in found if len(each) == 3 and stays_apart(*each)])])


main()
