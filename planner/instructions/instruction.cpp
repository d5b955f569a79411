#include "planner/instructions/instruction.hpp"

#include "planner/instructions/table.hpp"

namespace zeroplan::program {

std::string_view name_of(DataType type) {
  static constexpr std::string_view kNames[kDataTypes] = {"fp32", "fp16", "bf16", "int32", "uint8"};
  return kNames[static_cast<std::size_t>(type)];
}

std::string_view name_of(Phase phase) {
  static constexpr std::string_view kNames[] = {"setup", "forward", "backward", "step"};
  return kNames[static_cast<std::size_t>(phase)];
}

std::string_view name_of(Stream stream) {
  static constexpr std::string_view kNames[kStreams] = {"compute",   "communication", "tensor", "to_host",
                                                        "to_device", "host",          "input"};
  return kNames[static_cast<std::size_t>(stream)];
}

std::string_view name_of(Op op) { return row_of(op).name; }

bool allows(Types types, DataType type) {
  switch (types) {
    case Types::real:
      return type == DataType::fp32 || type == DataType::fp16 || type == DataType::bf16;
    case Types::fp32:
      return type == DataType::fp32;
    case Types::indices:
      return type == DataType::int32;
    case Types::bytes:
      return type == DataType::uint8;
    case Types::any:
      break;
  }
  return true;
}

std::string_view text_of(Types types) {
  static constexpr std::string_view kTexts[] = {"fp32, fp16 or bf16", "fp32", "int32", "uint8", "any type"};
  return kTexts[static_cast<std::size_t>(types)];
}

}  // namespace zeroplan::program
