#pragma once

#include <string>
#include <string_view>

// Proofs that a process knows the secret of the job, without saying it. For the implementation of sockets/
// only.
namespace zeroplan::executor::sockets {

// 32 bytes that nobody has seen before.
std::string fresh_bytes();

// HMAC-SHA-512-256 of `message` under `secret`; of whoever has no secret, under the empty one.
std::string proof_of(const std::string& secret, std::string_view message);

// Whether `proof` is that; takes as long for each that is not.
bool is_proof(const std::string& proof, const std::string& secret, std::string_view message);

}  // namespace zeroplan::executor::sockets
