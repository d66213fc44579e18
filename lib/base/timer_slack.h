// Timed waits that end when they are due: for emulated devices and links.
#pragma once

namespace fusionllm::base {

// From now on timed waits of the calling thread end as soon as the kernel can, not up to 50 us later, which Linux else allows itself to
// save wake-ups (man 2 prctl, PR_SET_TIMERSLACK). Linux alone; never fails.
void SetMinimalTimerSlack();

}  // namespace fusionllm::base
