#include <algorithm>
#include <string>
#include <string_view>

#include "reports/page/assets.hpp"
#include "reports/writers.hpp"

namespace zeroplan::reports {
namespace {

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

// JSON inside a script element ends where the element does: "<" is written as JSON has it otherwise.
std::string in_script(std::string_view json) {
  std::string result;
  for (const char c : json) {
    if (c == '<') {
      result += "\\u003c";
    } else {
      result += c;
    }
  }
  return result;
}

struct HtmlWriter {
  std::string text;

  void operator()(const Headline& headline) {
    text += "<h1>" + escaped(headline.title) + "</h1>\n<p class=\"answer " + escaped(headline.word) + "\">" +
            escaped(headline.answer) + "</p>\n";
  }
  void operator()(const Heading& heading) { text += "<h2>" + escaped(heading.text) + "</h2>\n"; }
  void operator()(const Paragraph& paragraph) { text += "<p>" + escaped(paragraph.text) + "</p>\n"; }
  void operator()(const Commands& commands) { add_lines(commands.lines); }
  void operator()(const Lines& lines) { add_lines(lines.lines); }
  void operator()(const Table& table) { add(table, ""); }

  void operator()(const Chart& chart) {
    const bool is_drawn = !page_assets().script.empty() && !chart.specification.empty();
    if (!is_drawn) {
      text += "<p class=\"about\">" + escaped(chart.alternative) + "</p>\n";
      return add(chart.table, chart.title);
    }
    text += "<figure class=\"has-chart\">\n<figcaption>" + escaped(chart.title) +
            "</figcaption>\n<p class=\"about\">" + escaped(chart.alternative) + "</p>\n" +
            legend_of(chart.legend) + "<div class=\"chart\"></div>\n<script type=\"application/json\">" +
            in_script(chart.specification) + "</script>\n<details><summary>The numbers</summary>\n";
    add(chart.table, chart.title);
    text += "</details>\n</figure>\n";
  }

 private:
  void add_lines(const std::vector<std::string>& lines) {
    text += "<pre>";
    for (const std::string& line : lines) text += escaped(line) + '\n';
    text += "</pre>\n";
  }

  // Squares as pictures of their own, since the page's policy allows no style on an element. One part needs no legend.
  static std::string legend_of(const std::vector<Shade>& shades) {
    if (shades.size() < 2) return {};
    std::string list = "<ul class=\"legend\">";
    for (const Shade& shade : shades) {
      list +=
          "<li><svg width=\"12\" height=\"12\" aria-hidden=\"true\"><rect width=\"12\" height=\"12\" "
          "fill=\"" +
          escaped(shade.color) + "\"/></svg> " + escaped(shade.name) + "</li>";
    }
    return list + "</ul>\n";
  }

  // The first cell of a row is what the row is of.
  void add(const Table& table, const std::string& caption) {
    text += "<div class=\"scroll\"><table>\n";
    if (!caption.empty()) text += "<caption>" + escaped(caption) + "</caption>\n";
    text += "<thead><tr>";
    for (const Column& column : table.columns)
      text += std::string("<th scope=\"col\"") + (column.numbers ? " class=\"number\"" : "") + ">" +
              escaped(column.heading) + "</th>";
    text += "</tr></thead>\n<tbody>\n";
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      const bool is_sum = std::count(table.rules_before.begin(), table.rules_before.end(), r) > 0;
      text += is_sum ? "<tr class=\"sum\">" : "<tr>";
      for (std::size_t i = 0; i < table.rows[r].size(); ++i) {
        const bool is_number = i < table.columns.size() && table.columns[i].numbers;
        const std::string_view element = i == 0 ? "th" : "td";
        text += "<" + std::string(element) + (i == 0 ? " scope=\"row\"" : "") +
                (is_number ? " class=\"number\"" : "") + ">" + escaped(cell_text(table.rows[r][i])) + "</" +
                std::string(element) + ">";
      }
      text += "</tr>\n";
    }
    text += "</tbody></table></div>\n";
  }
};

std::string title_of(const std::vector<Block>& blocks) {
  for (const Block& block : blocks) {
    if (const auto* headline = std::get_if<Headline>(&block)) return headline->title;
  }
  return "zeroplan";
}

}  // namespace

std::string write_html(const std::vector<Block>& blocks) {
  const PageAssets& assets = page_assets();
  HtmlWriter writer;
  writer.text = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  writer.text += "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src '" +
                 std::string(assets.style_digest) + "'; script-src '" + std::string(assets.script_digest) +
                 "'; img-src data:; base-uri 'none'; form-action 'none'\">\n";
  writer.text += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
                 escaped(title_of(blocks)) + "</title>\n";
  writer.text += "<style>";
  for (const std::string_view piece : assets.style) writer.text += piece;
  writer.text += "</style>\n</head>\n<body>\n<main>\n";
  const bool has_headline = std::any_of(blocks.begin(), blocks.end(), [](const Block& block) {
    return std::holds_alternative<Headline>(block);
  });
  if (!has_headline) writer.text += "<h1>" + escaped(title_of(blocks)) + "</h1>\n";
  for (const Block& block : blocks) std::visit(writer, block);
  writer.text += "</main>\n";
  if (!assets.script.empty()) {
    writer.text += "<script>";
    for (const std::string_view piece : assets.script) writer.text += piece;
    writer.text += "</script>\n";
  }
  return writer.text + "</body>\n</html>\n";
}

}  // namespace zeroplan::reports
