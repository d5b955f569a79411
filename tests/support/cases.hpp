#pragma once

#include <string_view>

#include "tests/support/reference.hpp"

namespace zeroplan::test {

// One question of cases.yaml with its right answer.
class Case {
 public:
  explicit Case(std::string_view id) : document_(reference("cases.yaml")), id_(id) {}

  const describe::Value& row() const { return test::row(rows(document_.root, "cases"), "id", id_); }
  double given(std::string_view path) const { return number(at(row(), "given"), path); }
  double answer(std::string_view path) const { return number(at(row(), "answer"), path); }
  std::vector<double> answers(std::string_view path) const { return numbers(at(row(), "answer"), path); }
  bool yes(std::string_view path) const { return text(at(row(), "answer"), path) == "true"; }

 private:
  describe::Document document_;
  std::string_view id_;
};

}  // namespace zeroplan::test
