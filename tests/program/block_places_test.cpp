#include "planner/program/block_places.hpp"

#include <doctest/doctest.h>

#include <map>
#include <random>

#include "planner/predict/memory.hpp"
#include "planner/program/compile.hpp"
#include "tests/support/plans.hpp"

using namespace zeroplan;
using namespace zeroplan::program;

TEST_CASE(
    "places: what nests is a stack, what does not fills gaps, and neighbours that are free are one gap") {
  BlockPlaces places;
  CHECK(places.take(100) == 0);
  CHECK(places.take(50) == 100);
  CHECK(places.take(30) == 150);
  places.give_back(150, 30);
  CHECK(places.take(40) == 150);  // the stack's top again
  CHECK(places.size() == 190);
  places.give_back(0, 100);
  CHECK(places.take(60) == 0);    // the lowest gap
  CHECK(places.take(50) == 190);  // 40 are left of it
  places.give_back(100, 50);
  CHECK(places.take(90) == 60);  // 60 to 100, and 100 to 150
  CHECK(places.size() == 240);
}

TEST_CASE(
    "places: none overlap, and a block is at least as large as what is held and as small as its highest "
    "end") {
  std::mt19937 random(11);
  BlockPlaces places;
  std::map<Bytes, Bytes> held;
  Bytes used = 0, most = 0, highest = 0;
  for (int i = 0; i < 20000; ++i) {
    if (held.size() < 50 && random() % 5 != 0) {
      const Bytes bytes = 1 + static_cast<Bytes>(random() % 1000);
      const Bytes offset = places.take(bytes);
      const auto next = held.lower_bound(offset);
      if (next != held.end()) CHECK(offset + bytes <= next->first);
      if (next != held.begin()) CHECK(std::prev(next)->first + std::prev(next)->second <= offset);
      held.emplace(offset, bytes);
      used += bytes;
      most = std::max(most, used);
      highest = std::max(highest, offset + bytes);
    } else if (!held.empty()) {
      auto piece = held.begin();
      std::advance(piece, static_cast<std::ptrdiff_t>(random() % held.size()));
      places.give_back(piece->first, piece->second);
      used -= piece->second;
      held.erase(piece);
    }
  }
  CHECK(places.size() == highest);
  CHECK(places.size() >= most);
  for (const auto& [offset, bytes] : held) places.give_back(offset, bytes);
  CHECK(places.take(highest) == 0);  // all is one gap again
}

TEST_CASE("places: the blocks of every plan of the grid are its peaks") {
  for (const describe::Model& model : {test::small_gpt(), test::small_llama()}) {
    test::for_each_plan(model, [&](const std::string& name, const describe::Plan& plan) {
      CAPTURE(name);
      const StepProgram program = compile(model, plan);
      const predict::MemoryProfile memory = predict::read_memory(program);
      const BlockSizes sizes = block_sizes(program);
      CHECK(sizes.device == memory.peak);
      CHECK(sizes.host == memory.host_peak);
    });
  }
}
