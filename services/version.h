// The build that a program belongs to, as handshakes and --version show it.
#pragma once

#include <cstdint>

namespace fusionllm::services {

inline constexpr char kBuildVersion[] = "0.1.0";

// Of broker.proto and of messages between stages: grows when an old peer could misunderstand a new one.
// 2: checkpoint.proto, Welcome.shared_token; 3: stage 0 waits for the end of an evaluation (runtime::MessageKind::kEvaluated);
// 4: reports and decisions say how many targets count (kEvaluationSize); 5: stages of an evaluation wait for its windows; 6: who enrolls
// makes its own key, Renew.
inline constexpr uint32_t kProtocolVersion = 6;

// Why a broker refuses an executor of an attempt before its own. The executor ends then: it is not waited for any more.
inline constexpr char kSupersededAttempt[] = "SupersededAttempt";

}  // namespace fusionllm::services
