#pragma once

#include <string>
#include <string_view>

#include "planner/describe/text/document.hpp"

// Files of other programs that state a training or a model and that zeroplan does not read. Such a file shares a
// key or two with the formats that are read, so it is recognised by what it is before any of them is tried: by at
// least two keys of its own, and more of them than it has keys of a plan.
namespace zeroplan::describe {

// Throws a ConfigurationError that names the kind of file and the options that say the same, with the file's
// values; does nothing for any other file. Kinds: GPT-NeoX, llm-foundry, Hugging Face TrainingArguments, axolotl,
// LLaMA-Factory, torchtitan, Megatron-LM, and a model's config.json where a plan is asked for.
void refuse_foreign_plan(const Document& document);

// The same for text that is neither YAML nor JSON: a torchtitan TOML, the arguments or the shell script of
// Megatron-LM.
void refuse_foreign_text(std::string_view text, const std::string& source);

// A file given as a model that is one of the kinds above, a configuration of DeepSpeed or accelerate, or a plan.
void refuse_foreign_model(const Document& document);

}  // namespace zeroplan::describe
