#include "lib/checkpoint/hashed_file.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <new>
#include <vector>

#include "absl/strings/escaping.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"

namespace fusionllm::checkpoint {
namespace {

constexpr int64_t kHashBytes = 1 << 20;

}  // namespace

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  if (state_->context == nullptr || EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
}
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;
Sha256::~Sha256() = default;

void Sha256::Update(std::span<const std::byte> bytes) { EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()); }

std::string Sha256::HexDigest() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest = {};
  unsigned int size = 0;
  EVP_DigestFinal_ex(state_->context, digest.data(), &size);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest.data()), size));
}

absl::StatusOr<std::string> Sha256OfFile(const std::string& path) {
  FUSIONLLM_ASSIGN_OR_RETURN(const base::SourceFile file, base::SourceFile::Open(path, /*keep_open=*/true));
  Sha256 hash;
  std::vector<std::byte> chunk(static_cast<size_t>(std::min(kHashBytes, file.size())));
  for (int64_t at = 0; at < file.size();) {
    const std::span part(chunk.data(), static_cast<size_t>(std::min(kHashBytes, file.size() - at)));
    FUSIONLLM_RETURN_IF_ERROR(file.ReadAt(at, part));
    hash.Update(part);
    at += static_cast<int64_t>(part.size());
  }
  return hash.HexDigest();
}

absl::StatusOr<HashedFile> HashedFile::Create(std::string path) {
  FUSIONLLM_ASSIGN_OR_RETURN(base::OutputFile file, base::OutputFile::Create(std::move(path)));
  return HashedFile(std::move(file));
}

absl::Status HashedFile::Write(std::span<const std::byte> bytes) {
  hash_.Update(bytes);
  bytes_ += static_cast<int64_t>(bytes.size());
  return file_.Write(bytes);
}

absl::StatusOr<WrittenFile> HashedFile::Finish() {
  FUSIONLLM_RETURN_IF_ERROR(file_.Finish());
  return WrittenFile{bytes_, hash_.HexDigest()};
}

absl::StatusOr<WrittenFile> WriteHashedFile(const std::string& path, absl::string_view text) {
  FUSIONLLM_ASSIGN_OR_RETURN(HashedFile file, HashedFile::Create(path));
  FUSIONLLM_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(text.data(), text.size()))));
  return file.Finish();
}

}  // namespace fusionllm::checkpoint
