#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <sstream>
#include <utility>

#include "planner/describe/text/document.hpp"
#include "planner/describe/text/document_builder.hpp"
#include "planner/utf8.hpp"

namespace zeroplan::describe {
namespace {

int line_of(const YAML::Mark& mark) { return mark.is_null() ? 0 : mark.line + 1; }

// yaml-cpp resolves no duplicates, aliases or tags here: only its scanner and grammar are used.
class TreeHandler : public YAML::EventHandler {
 public:
  explicit TreeHandler(DocumentBuilder& builder) : builder_(builder) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (started_) {
      builder_.fail(line_of(mark), "found more text after the end of the document, expected one document");
    }
    started_ = true;
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    if (builder_.expects_key()) builder_.fail(line_of(mark), "found an empty key, expected a name");
    // The mark of a value left out is that of whatever comes next in the file.
    builder_.null(key_line_ > 0 ? key_line_ : line_of(mark));
    key_line_ = 0;
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    builder_.fail(line_of(mark), "found an alias (*name), expected the value itself");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (builder_.expects_key()) {
      builder_.key(value, line_of(mark));
      key_line_ = line_of(mark);
    } else {
      builder_.scalar(value, tag == "!", line_of(mark));
      key_line_ = 0;
    }
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(Value::Kind::list, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(Value::Kind::map, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  void open(Value::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (builder_.expects_key()) {
      builder_.fail(line_of(mark), fmt::format("found a {} as a key, expected a name",
                                               kind == Value::Kind::map ? "map" : "list"));
    }
    builder_.open(kind, line_of(mark));
    key_line_ = 0;
  }

  void close() {
    builder_.close();
    key_line_ = 0;
  }

  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) {
      builder_.fail(line_of(mark), "found an anchor (&name), expected a plain value");
    }
  }

  // yaml-cpp gives "?" for a plain value and "!" for a quoted one.
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (tag != "?" && tag != "!" && !tag.empty()) {
      builder_.fail(line_of(mark), fmt::format("found the tag {}, expected a plain value", quoted(tag)));
    }
  }

  DocumentBuilder& builder_;
  bool started_ = false;
  int key_line_ = 0;  // of the key whose value comes next
};

// yaml-cpp keeps carriage returns inside folded text; lines end with a line feed only in our tree.
std::string with_line_feeds(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (const char c : text) {
    if (c != '\r') result += c;
  }
  return result;
}

}  // namespace

Document parse_yaml(std::string_view text, std::string source) {
  const std::string_view checked = checked_text(text, kMaximumYamlBytes, source);
  DocumentBuilder builder(std::move(source));
  TreeHandler handler(builder);
  try {
    std::istringstream stream(with_line_feeds(checked));
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(handler)) {
    }
  } catch (const YAML::Exception& error) {
    builder.fail(line_of(error.mark), fmt::format("found text that is not YAML: {}", error.msg));
  }
  return builder.finish();
}

}  // namespace zeroplan::describe
