// The certificates of a connection, read again when their files are renewed: an authority or a client certificate that is rotated must not
// take a restart. Thread-safe; blocks on the file system.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/kube/auth/client_config.h"
#include "lib/kube/auth/credentials.h"
#include "lib/kube/clock.h"
#include "lib/kube/http/curl_transport.h"

namespace fusionllm::kube {

class TlsSource {
 public:
  // Files are read again after a minute. `credentials` may bring a client certificate, which goes before those of the files.
  TlsSource(PemSource ca, PemSource certificate, PemSource key, std::shared_ptr<CredentialSource> credentials, Clock& clock)
      : ca_(std::move(ca)),
        certificate_(std::move(certificate)),
        key_(std::move(key)),
        credentials_(std::move(credentials)),
        clock_(clock) {}

  // The same object as long as nothing has changed. While a file cannot be read, what was read before stays in use.
  absl::StatusOr<std::shared_ptr<const TlsMaterial>> Get();

 private:
  absl::StatusOr<TlsMaterial> Read() const;

  const PemSource ca_, certificate_, key_;
  const std::shared_ptr<CredentialSource> credentials_;
  Clock& clock_;
  base::Mutex mutex_;
  TlsMaterial files_ ABSL_GUARDED_BY(mutex_);
  bool have_files_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration read_again_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const TlsMaterial> last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fusionllm::kube
