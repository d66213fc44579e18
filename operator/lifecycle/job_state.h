// What a job's status says in one word, for people; programs look at the conditions.
#pragma once

namespace fusionllm::op::lifecycle {

enum class JobState { kPending, kQueued, kStarting, kRunning, kRestarting, kSuspending, kSuspended, kComplete, kFailed, kDeleting };
const char* Name(JobState state);

}  // namespace fusionllm::op::lifecycle
