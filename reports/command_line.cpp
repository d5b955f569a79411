#include "reports/command_line.hpp"

#include <algorithm>
#include <cctype>

namespace zeroplan::reports {
namespace {

std::string value_text(std::int64_t value) { return std::to_string(value); }
std::string value_text(const std::string& value) { return shell_word(value); }
template <class Enumeration>
std::string value_text(Enumeration value) {
  return std::string(describe::name_of(value));
}

struct Line {
  std::string text;

  template <class T>
  void add(std::string_view option, const std::optional<T>& value) {
    if (value) text += ' ' + std::string(option) + ' ' + value_text(*value);
  }
  void add(std::string_view option, const std::optional<bool>& value) {
    if (value) text += ' ' + std::string(option) + (*value ? "" : "=false");
  }
};

}  // namespace

std::string shell_word(std::string_view text) {
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("-_./=,:+@%").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
    } else {
      result += c;
    }
  }
  return result + "'";
}

std::string command_line(std::string_view command, std::string_view model, std::string_view hardware,
                         const describe::PlanOptions& options) {
  Line line;
  line.text = "zeroplan " + std::string(command) + ' ' + shell_word(model);
  if (!hardware.empty()) line.text += " --hw " + shell_word(hardware);
  line.add("--nodes", options.nodes);
  line.add("--gpus", options.gpus);
  line.add("--dp", options.dp);
  line.add("--tp", options.tp);
  line.add("--zero", options.zero);
  line.add("--shard", options.shard);
  line.add("--secondary-shard", options.secondary_shard);
  line.add("--micro-batch", options.micro_batch);
  line.add("--grad-accum", options.grad_accum);
  line.add("--global-batch", options.global_batch);
  line.add("--seq", options.seq);
  line.add("--dtype", options.dtype);
  line.add("--optimizer", options.optimizer);
  line.add("--recompute", options.recompute);
  line.add("--checkpoint-interval", options.checkpoint_interval);
  line.add("--attention", options.attention);
  line.add("--dropout", options.dropout);
  line.add("--partition-activations", options.partition_activations);
  line.add("--offload-activations", options.offload_activations);
  line.add("--offload", options.offload);
  line.add("--constant-buffers", options.constant_buffers);
  line.add("--bucket", options.bucket);
  line.add("--contiguous-memory", options.contiguous_memory);
  line.add("--overlap", options.overlap);
  line.add("--engine", options.engine);
  line.add("--reserve", options.reserve);
  line.add("--host-memory", options.host_memory);
  return line.text;
}

}  // namespace zeroplan::reports
