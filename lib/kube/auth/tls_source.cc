#include "lib/kube/auth/tls_source.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/kube/auth/small_file.h"

namespace fusionllm::kube {
namespace {

constexpr absl::Duration kFileAge = absl::Minutes(1);
constexpr size_t kMaxPemBytes = size_t{1} << 20;

absl::StatusOr<std::string> Pem(const PemSource& source) {
  if (source.path.empty()) return source.data;
  return ReadSmallFile(source.path, kMaxPemBytes);
}

}  // namespace

absl::StatusOr<TlsMaterial> TlsSource::Read() const {
  TlsMaterial material;
  FUSIONLLM_ASSIGN_OR_RETURN(material.ca_pem, Pem(ca_));
  FUSIONLLM_ASSIGN_OR_RETURN(material.certificate_pem, Pem(certificate_));
  FUSIONLLM_ASSIGN_OR_RETURN(material.key_pem, Pem(key_));
  // An empty file would mean the machine's own authorities.
  if (material.ca_pem.empty() && !ca_.empty()) return absl::FailedPreconditionError(absl::StrCat(ca_.path, ": is empty"));
  return material;
}

absl::StatusOr<std::shared_ptr<const TlsMaterial>> TlsSource::Get() {
  // Before the lock: a program that makes credentials may take long.
  std::shared_ptr<const Credentials> credentials;
  if (credentials_ != nullptr) {
    FUSIONLLM_ASSIGN_OR_RETURN(credentials, credentials_->Get({}));
  }
  const base::MutexLock lock(mutex_);
  if (!have_files_ || clock_.Monotonic() >= read_again_) {
    absl::StatusOr<TlsMaterial> read = Read();
    if (!read.ok() && !have_files_) return read.status();
    if (read.ok()) {
      files_ = *std::move(read);
    } else {
      base::Log(base::LogLevel::kWarning,
                absl::StrCat("certificates are not renewed, the last ones stay in use: ", read.status().message()));
    }
    have_files_ = true;
    read_again_ = clock_.Monotonic() + kFileAge;
  }
  TlsMaterial material = files_;
  if (credentials != nullptr && !credentials->certificate_pem.empty()) {
    material.certificate_pem = credentials->certificate_pem;
    material.key_pem = credentials->key_pem;
  }
  if (last_ == nullptr || *last_ != material) last_ = std::make_shared<const TlsMaterial>(std::move(material));
  return last_;
}

}  // namespace fusionllm::kube
