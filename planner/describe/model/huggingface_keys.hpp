#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/describe/text/known_keys.hpp"

// What becomes of each key of a config.json that a family's reader does not ask for. Keys that it asks for are
// used, whatever stands here, because families differ in what they read. tests/reference/readers/keys.csv holds
// the keys that transformers declares for each family; a test holds this table against it.
namespace zeroplan::describe {

// Of any family: the language model's own map, which is text_config in a model of text and images.
std::span<const KnownKey> huggingface_keys();

// Of attn_config (MPT).
std::span<const KnownKey> huggingface_attention_keys();

// Of the file around text_config.
std::span<const KnownKey> huggingface_wrapper_keys();

}  // namespace zeroplan::describe
