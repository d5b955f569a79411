#include "planner/describe/text/document.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zeroplan::describe {
namespace {

using Kind = Value::Kind;
using Parser = Document (*)(std::string_view, std::string);

constexpr std::size_t kMega = std::size_t{1} << 20;

std::string repeated(std::string_view unit, std::size_t times) {
  std::string result;
  result.reserve(unit.size() * times);
  for (std::size_t i = 0; i < times; ++i) result += unit;
  return result;
}

std::vector<Problem> problems_of(Parser parse, std::string_view text) {
  try {
    parse(text, "f");
  } catch (const ConfigurationError& error) {
    for (const Problem& problem : error.problems()) {
      CHECK(problem.source == "f");
      CHECK(problem.text().find('\n') == std::string::npos);
    }
    return error.problems();
  }
  return {};
}

// The one problem of a text: its line, and that its message says `part`.
void check_refused(Parser parse, std::string_view text, int line, std::string_view part) {
  CAPTURE(std::string(text.substr(0, 80)));
  const std::vector<Problem> problems = problems_of(parse, text);
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].line == line);
  CAPTURE(problems[0].message);
  CHECK(problems[0].message.find(part) != std::string::npos);
}

std::size_t depth(const Value& value) {
  std::size_t deepest = 0;
  for (const Value& item : value.items) deepest = std::max(deepest, depth(item));
  for (const Entry& entry : value.entries) deepest = std::max(deepest, depth(entry.value));
  return value.kind == Kind::list || value.kind == Kind::map ? deepest + 1 : 0;
}

TEST_CASE("YAML: every value with its kind, text and line") {
  const Document document = parse_yaml(
      "# a comment\n"
      "name: gpt2\n"
      "quoted: \"012\"\n"
      "octal: 012\n"
      "nothing:\n"
      "\n"
      "tilde: ~\n"
      "list:\n"
      "  - 1\n"
      "  - [2, 3]\n"
      "  -\n"
      "map: {a: 1,\n"
      "      b: 2}\n"
      "text: |\n"
      "  first\n"
      "  second\n"
      "last: true\n",
      "m.yaml");
  CHECK(document.source == "m.yaml");
  const Value& root = document.root;
  REQUIRE(root.kind == Kind::map);
  REQUIRE(root.entries.size() == 9);
  CHECK(root.find("name")->text == "gpt2");
  CHECK(root.find("name")->line == 2);
  CHECK_FALSE(root.find("name")->quoted);
  CHECK(root.find("quoted")->text == "012");
  CHECK(root.find("quoted")->quoted);
  CHECK(root.find("octal")->text == "012");
  CHECK_FALSE(root.find("octal")->quoted);
  CHECK(root.find("nothing")->kind == Kind::null);
  CHECK(root.find("nothing")->line == 5);
  CHECK(root.find("tilde")->kind == Kind::null);
  CHECK(root.find("tilde")->line == 7);
  const Value& list = *root.find("list");
  REQUIRE(list.items.size() == 3);
  CHECK(list.items[0].line == 9);
  CHECK(list.items[1].items[1].text == "3");
  CHECK(list.items[2].kind == Kind::null);
  CHECK(root.find("map")->find("b")->line == 13);
  CHECK(root.find("text")->text == "first\nsecond\n");
  CHECK(root.find("last")->line == 17);
  CHECK(root.entries[8].key == "last");
  CHECK(root.entries[8].line == 17);
  CHECK(root.find("absent") == nullptr);
}

TEST_CASE("JSON: every value with its kind, text and line") {
  const Document document = parse_json(
      "{\n"
      "  \"name\": \"gpt2\",\n"
      "  \"layers\": 12,\n"
      "  \"big\": 18446744073709551616,\n"
      "  \"eps\": 1e-05\n"
      "  ,\"negative\": -3,\n"
      "  \"tied\": true, \"bias\": false,\n"
      "  \"nothing\": null,\n"
      "  \"list\": [1,\n"
      "    2\n"
      "  ],\n"
      "  \"map\": {}\n"
      "}\n",
      "config.json");
  const Value& root = document.root;
  REQUIRE(root.kind == Kind::map);
  CHECK(root.line == 1);
  CHECK(root.find("name")->text == "gpt2");
  CHECK(root.find("name")->quoted);
  CHECK(root.find("layers")->text == "12");
  CHECK_FALSE(root.find("layers")->quoted);
  CHECK(root.find("layers")->line == 3);
  CHECK(root.find("big")->text == "18446744073709551616");
  CHECK(root.find("eps")->text == "1e-05");
  CHECK(root.find("eps")->line == 5);
  CHECK(root.find("negative")->text == "-3");
  CHECK(root.find("negative")->line == 6);
  CHECK(root.find("tied")->text == "true");
  CHECK_FALSE(root.find("tied")->quoted);
  CHECK(root.find("bias")->text == "false");
  CHECK(root.find("nothing")->kind == Kind::null);
  CHECK(root.find("nothing")->line == 8);
  CHECK(root.find("list")->line == 9);
  CHECK(root.find("list")->items[0].line == 9);
  CHECK(root.find("list")->items[1].line == 10);
  CHECK(root.find("map")->kind == Kind::map);
  CHECK(root.entries.back().line == 12);
}

TEST_CASE("line numbers are the same with CRLF") {
  for (const auto& [parse, text] :
       {std::pair<Parser, std::string>{parse_yaml, "a: 1\nb:\n  - x\n  - |\n    p\n    q\nc: 2\n"},
        std::pair<Parser, std::string>{parse_json, "{\n\"a\": 1,\n\"b\": [\n2\n],\n\n\"c\": 2\n}\n"}}) {
    std::string crlf;
    for (const char c : text) crlf += c == '\n' ? std::string("\r\n") : std::string(1, c);
    const Value with_lf = parse(text, "f").root;
    const Value with_crlf = parse(crlf, "f").root;
    CHECK(with_lf.find("c")->line == 7);
    CHECK(with_crlf.find("c")->line == 7);
    CHECK(with_crlf.find("c")->text == "2");
    CHECK(with_crlf.find("b")->items.back().text == with_lf.find("b")->items.back().text);
    CHECK(with_crlf.find("b")->items.back().line == with_lf.find("b")->items.back().line);
  }
}

TEST_CASE("an empty text") {
  for (const std::string_view text : {"", "\n\n", "# only a comment\n", "---\n"}) {
    CAPTURE(text);
    CHECK(parse_yaml(text, "f").root.kind == Kind::null);
    CHECK(parse_yaml(text, "f").root.line == 1);
  }
  check_refused(parse_json, "", 1, "no text");
  check_refused(parse_json, " \n ", 1, "no text");
}

TEST_CASE("a UTF-8 byte order mark is not text") {
  CHECK(parse_yaml("\xEF\xBB\xBF"
                   "a: 1",
                   "f")
            .root.find("a") != nullptr);
  CHECK(parse_json("\xEF\xBB\xBF{\"a\": 1}", "f").root.find("a") != nullptr);
}

TEST_CASE("text that is not plain UTF-8 is refused with its line") {
  for (const Parser parse : {parse_yaml, parse_json}) {
    using namespace std::string_view_literals;
    check_refused(parse, "\xFF\xFE{\0}\0"sv, 1, "UTF-16");
    check_refused(parse, "\xFE\xFF\0{\0}"sv, 1, "UTF-16");
    check_refused(parse, "[1,\n\0 2]"sv, 2, "NUL");
    check_refused(parse, "[1,\n\n\x01 2]", 3, "U+0001");
    check_refused(parse, "[1, \x1b[31m]", 1, "U+001B");
    check_refused(parse, "[1, \x7f]", 1, "U+007F");
    check_refused(parse, "[1, \xc2\x80]", 1, "U+0080");
    check_refused(parse, "[1,\r2]", 1, "carriage return");
    check_refused(parse, "[1]\r", 1, "carriage return");
    check_refused(parse, "[1,\n\"\xff\"]", 2, "0xff");
    check_refused(parse, "[\"\xc0\x80\"]", 1, "0xc0");
    check_refused(parse, "[\"\xed\xa0\x80\"]", 1, "0xed");
    check_refused(parse, "[\"\xe2\x82", 1, "0xe2");
  }
}

TEST_CASE("every duplicate key is told, with its path and both lines") {
  const std::vector<Problem> yaml = problems_of(parse_yaml, "a: 1\nb:\n  c: 1\n  c: 2\na: {d: 1, d: 2}\n");
  REQUIRE(yaml.size() == 3);
  CHECK(yaml[0].key == "b.c");
  CHECK(yaml[0].line == 4);
  CHECK(yaml[0].message.find("line 3") != std::string::npos);
  CHECK(yaml[1].key == "a");
  CHECK(yaml[1].line == 5);
  CHECK(yaml[2].key == "a.d");
  const std::vector<Problem> json = problems_of(parse_json, "{\"a\": [{\"b\": 1},\n{\"b\": 1,\n\"b\": 2}]}");
  REQUIRE(json.size() == 1);
  CHECK(json[0].key == "a[1].b");
  CHECK(json[0].line == 3);
  CHECK(problems_of(parse_json, "{\"a\": 1, \"A\": 2}").empty());
  CHECK(problems_of(parse_json, "{\"a\": 1, \"\\u0061\": 2}").size() == 1);
  CHECK(problems_of(parse_yaml, "a: 1\n\"a\": 2\n").size() == 1);
  CHECK(problems_of(parse_yaml, repeated("a: 1\n", 100'000)).size() < 100);
}

TEST_CASE("YAML: anchors, aliases, tags and further documents are refused") {
  check_refused(parse_yaml, "a: 1\nb: &x 2\n", 2, "anchor");
  check_refused(parse_yaml, "a: 1\nb: &x [2]\n", 2, "anchor");
  check_refused(parse_yaml, "a: 1\nb: &x {c: 2}\n", 2, "anchor");
  check_refused(parse_yaml, "&x a: 1\n", 1, "anchor");
  check_refused(parse_yaml, "a: 1\nb: &x\n", 2, "anchor");
  check_refused(parse_yaml, "a: 1\nb: *x\n", 2, "anchor");  // not defined
  check_refused(parse_yaml, "a: 1\nb: !!int 2\n", 2, "tag");
  check_refused(parse_yaml, "a: 1\nb: !mine [2]\n", 2, "tag");
  check_refused(parse_yaml, "a: 1\n!!str b: 2\n", 2, "tag");
  check_refused(parse_yaml, "a: 1\n---\nb: 2\n", 2, "one document");
  check_refused(parse_yaml, "a: 1\n...\nb: 2\n", 3, "one document");
}

TEST_CASE("YAML: a key is a name") {
  check_refused(parse_yaml, "a: 1\n? [b]\n: 2\n", 2, "list as a key");
  check_refused(parse_yaml, "a: 1\n? {b: 1}\n: 2\n", 2, "map as a key");
  check_refused(parse_yaml, "a: 1\n: 2\n", 2, "empty key");
  check_refused(parse_yaml, "{a: 1, ~: 2}", 1, "empty key");
}

TEST_CASE("text that is not YAML is refused with its line") {
  struct Case {
    std::string text;
    int line;
  };
  for (const Case& broken :
       {Case{"a: 1\n b: 2\n", 2}, Case{"a: 1\nb: [1, 2\n", 2}, Case{"a: 1\nb: {c: 1\n", 2},
        Case{"a: 1\n]\n", 2}, Case{"a: \"x\\q\"\n", 1}, Case{"a: b: c\n", 1}, Case{"a: 1\n@\n", 2}}) {
    CAPTURE(broken.text);
    const std::vector<Problem> problems = problems_of(parse_yaml, broken.text);
    REQUIRE(problems.size() == 1);
    CHECK(problems[0].line >= broken.line);
    CHECK(problems[0].line <= broken.line + 1);
  }
}

TEST_CASE("a JSON text that is cut short is refused with the line where it ends, wherever it is cut") {
  const std::string whole = "{\"a\": [1, 2],\n\"b\": {\"c\": \"text\"},\n\"d\": true\n}";
  REQUIRE(problems_of(parse_json, whole).empty());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    const std::string cut = whole.substr(0, size);
    const std::vector<Problem> problems = problems_of(parse_json, cut);
    REQUIRE(problems.size() == 1);
    const std::string trimmed = cut.substr(0, cut.find_last_not_of('\n') + 1);
    CHECK(problems[0].line == 1 + std::count(trimmed.begin(), trimmed.end(), '\n'));
  }
  check_refused(parse_json, "{\n\"a\": 1,\n\"b\": [1, 2", 3, "ends too early");
  check_refused(parse_json, "{\n\"a\": \"tex", 2, "ends too early");
  check_refused(parse_json, "{\n\"a\": 1\n\n\n", 2, "ends too early");
}

TEST_CASE("text that is not JSON is refused with its line") {
  check_refused(parse_json, "{\n\"a\": 012\n}", 2, "not JSON");
  check_refused(parse_json, "{\n\"a\": NaN\n}", 2, "not JSON");
  check_refused(parse_json, "{\n\"a\": Infinity\n}", 2, "not JSON");
  check_refused(parse_json, "{\n\"a\": 0x10\n}", 2, "not JSON");
  check_refused(parse_json, "{\n\"a\": +1\n}", 2, "not JSON");
  check_refused(parse_json, "{\n\"a\": .5\n}", 2, "not JSON");
  check_refused(parse_json, "{\n\"a\": 1e400\n}", 2, "overflow");
  check_refused(parse_json, "{\n\"a\": 'x'\n}", 2, "not JSON");
  check_refused(parse_json, "{\n\"a\": 1,\n}", 3, "not JSON");
  check_refused(parse_json, "{\"a\": 1}\n{}", 2, "not JSON");
  check_refused(parse_json, "{\n// no\n\"a\": 1}", 2, "not JSON");
  check_refused(parse_json, "{\n\"a\n\": 1}", 2, "not JSON");
  check_refused(parse_json, "{\n\"a\": \"\\ud800\"}", 2, "not JSON");
}

TEST_CASE("nesting of 64 is read, of 65 is refused") {
  const auto json_lists = [](std::size_t n) { return repeated("[", n) + repeated("]", n); };
  const auto json_maps = [](std::size_t n) { return repeated("{\"a\": ", n) + "1" + repeated("}", n); };
  const auto dashes = [](std::size_t n) { return repeated("- ", n) + "1"; };
  const auto indented = [](std::size_t n) {
    std::string text;
    for (std::size_t i = 0; i < n; ++i) text += repeated(" ", i) + "a:\n";
    return text;
  };
  for (const std::size_t n : {std::size_t{1}, std::size_t{63}, std::size_t{64}}) {
    CHECK(depth(parse_json(json_lists(n), "f").root) == n);
    CHECK(depth(parse_json(json_maps(n), "f").root) == n);
    CHECK(depth(parse_yaml(json_lists(n), "f").root) == n);
    CHECK(depth(parse_yaml(json_maps(n), "f").root) == n);
    CHECK(depth(parse_yaml(dashes(n), "f").root) == n);
    CHECK(depth(parse_yaml(indented(n), "f").root) == n);
  }
  check_refused(parse_json, json_lists(65), 1, "nesting deeper than 64");
  check_refused(parse_json, json_maps(65), 1, "nesting deeper than 64");
  check_refused(parse_yaml, json_lists(65), 1, "nesting deeper than 64");
  check_refused(parse_yaml, json_maps(65), 1, "nesting deeper than 64");
  check_refused(parse_yaml, dashes(65), 1, "nesting deeper than 64");
  check_refused(parse_yaml, indented(65), 65, "nesting deeper than 64");
}

TEST_CASE("hostile nesting ends in one problem, not in a crash") {
  for (const std::string_view unit : {"[", "{\"a\":", "[{\"a\":"}) {
    CHECK(problems_of(parse_json, repeated(unit, 16 * kMega / unit.size())).size() == 1);
  }
  for (const std::string_view unit : {"[", "{", "? ", "- ", "[? ", "[a: ", "{a: ", "{? ", "a: ", ": ", "&a ",
                                      "!a ", "*a ", "%a\n", "---\n", "\"", "'"}) {
    CAPTURE(unit);
    const std::string text = repeated(unit, kMega / 16 / unit.size());
    CHECK(problems_of(parse_yaml, text).size() <= 1);
    CHECK(problems_of(parse_yaml, "a: " + text).size() <= 1);
  }
}

TEST_CASE("text above the limit is refused before it is parsed") {
  const std::string bomb(20 * kMega, '[');
  check_refused(parse_yaml, bomb, 0, "at most 1 MiB");
  check_refused(parse_json, bomb, 0, "at most 16 MiB");
  const std::string comment(kMega, '#');
  CHECK(parse_yaml(comment, "f").root.kind == Kind::null);
  CHECK(parse_yaml(std::string_view(comment).substr(1), "f").root.kind == Kind::null);
  check_refused(parse_yaml, comment + "#", 0, "at most 1 MiB");
  const std::string spaces(16 * kMega - 1, ' ');
  CHECK(parse_json("1" + spaces, "f").root.text == "1");
  check_refused(parse_json, "1 " + spaces, 0, "at most 16 MiB");
}

TEST_CASE("200,000 values are read, one more is refused") {
  const auto list = [](std::size_t items) { return "[" + repeated("1,", items - 1) + "1]"; };
  CHECK(parse_json(list(199'999), "f").root.items.size() == 199'999);
  check_refused(parse_json, list(200'000), 1, "more than 200000 values");
}

// A folder of this test's own, gone at its end.
class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() /
              ("zeroplan_document_test_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }

  std::string path() const { return path_.string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::string file = (path_ / name).string();
    std::ofstream(file, std::ios::binary) << text;
    return file;
  }

 private:
  std::filesystem::path path_;
};

void check_unreadable(const std::string& path, std::string_view part) {
  CAPTURE(path);
  try {
    read_text_file(path);
    FAIL("the file was read");
  } catch (const ConfigurationError& error) {
    REQUIRE(error.problems().size() == 1);
    CHECK(error.problems()[0].source == path);
    CAPTURE(error.problems()[0].message);
    CHECK(error.problems()[0].message.find(part) != std::string::npos);
  }
}

TEST_CASE("a file is read byte for byte") {
  const Folder folder;
  using namespace std::string_literals;
  for (const std::string& text : {""s, "a"s, "a: 1\r\n\0b\xff"s, repeated("0123456789", 20'000)}) {
    CHECK(read_text_file(folder.write("f", text)) == text);
  }
}

TEST_CASE("a file is at most 16 MiB") {
  const Folder folder;
  CHECK(read_text_file(folder.write("f", std::string(16 * kMega - 1, '['))).size() == 16 * kMega - 1);
  CHECK(read_text_file(folder.write("f", std::string(16 * kMega, '['))).size() == 16 * kMega);
  check_unreadable(folder.write("f", std::string(16 * kMega + 1, '[')), "larger than 16 MiB");
}

TEST_CASE("what is not a file is refused by name") {
  const Folder folder;
  check_unreadable(folder.path(), "folder");
  check_unreadable(folder.path() + "/absent.yaml", "no such file");
  check_unreadable(folder.write("f", "x") + "/below", "");
  check_unreadable("/dev/null", "device");
  check_unreadable("/dev/zero", "device");
  check_unreadable("", "empty file name");
  check_unreadable(std::string("/dev\0/null", 10), "NUL");
  check_unreadable(folder.path() + "/" + std::string(5000, 'x'), "");
}

}  // namespace
}  // namespace zeroplan::describe
