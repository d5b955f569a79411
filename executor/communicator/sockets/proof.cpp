#include "executor/communicator/sockets/proof.hpp"

#include <sodium.h>

#include <array>

#include "executor/error.hpp"

namespace zeroplan::executor::sockets {

namespace {

using Key = std::array<unsigned char, crypto_auth_KEYBYTES>;

void require_library() {
  if (sodium_init() < 0)
    throw CommunicationError("libsodium does not start: the system has no random numbers");
}

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

// The secret is text of any length.
Key key_of(const std::string& secret) {
  Key key{};
  crypto_generichash(key.data(), key.size(), bytes_of(secret), secret.size(), nullptr, 0);
  return key;
}

}  // namespace

std::string fresh_bytes() {
  require_library();
  std::string bytes(32, '\0');
  randombytes_buf(bytes.data(), bytes.size());
  return bytes;
}

std::string proof_of(const std::string& secret, std::string_view message) {
  require_library();
  std::string proof(crypto_auth_BYTES, '\0');
  crypto_auth(reinterpret_cast<unsigned char*>(proof.data()), bytes_of(message), message.size(),
              key_of(secret).data());
  return proof;
}

bool is_proof(const std::string& proof, const std::string& secret, std::string_view message) {
  require_library();
  return proof.size() == crypto_auth_BYTES &&
         crypto_auth_verify(bytes_of(proof), bytes_of(message), message.size(), key_of(secret).data()) == 0;
}

}  // namespace zeroplan::executor::sockets
