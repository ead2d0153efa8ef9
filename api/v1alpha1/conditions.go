package v1alpha1

// Types of conditions. Each is always there once the operator has seen the object.
const (
	// ConditionReady is True if the operator does what the spec asks, and needs nobody.
	ConditionReady = "Ready"
	// ConditionFresh is True if no new image is due.
	ConditionFresh = "Fresh"
	// ConditionProven is True if the first nodes of the image of new nodes came up.
	ConditionProven = "Proven"
	// ConditionProgressing is True while something runs on the pool.
	ConditionProgressing = "Progressing"
	// ConditionStalled is True if nothing goes on until somebody does what the message says.
	ConditionStalled = "Stalled"
)

// Reasons of Ready.
const (
	// ReasonOperating: True. The operator does what the spec asks.
	ReasonOperating = "Operating"
	// ReasonObserving: True. The spec has neither capture nor watch nor rollout: nothing is changed.
	ReasonObserving = "Observing"
	// ReasonSuspended: True, and of Progressing False. spec.suspend is set: nothing is begun.
	ReasonSuspended = "Suspended"
	// ReasonNotReady: False, and of Fresh and Proven Unknown if the pool was not read. Stalled says why,
	// and what to do.
	ReasonNotReady = "NotReady"
	// ReasonUnreadable: Unknown, of each condition. Azure or the API server does not answer; the last
	// status stands, and the operator tries again.
	ReasonUnreadable = "Unreadable"
)

// Reasons of Fresh.
const (
	// ReasonFresh: True. The image is newer than maxImageAge and the last patch of a node.
	ReasonFresh = "UpToDate"
	// ReasonDue: False. A new image is due; the message says why, and when a capture may begin.
	ReasonDue = "Due"
	// ReasonNoDonor: False. A new image is due, and no node qualifies as its donor.
	ReasonNoDonor = "NoDonor"
	// ReasonNoCapture: Unknown. The spec has no capture, so no image is ever due.
	ReasonNoCapture = "NoCapture"
)

// Reasons of Proven.
const (
	// ReasonProven: True. Its first nodes came up.
	ReasonProven = "NodesCameUp"
	// ReasonWatched: Unknown. Its first nodes are watched; Progressing counts them.
	ReasonWatched = "Watched"
	// ReasonUnproven: Unknown. The time limit of its watch is over, and no node of it was made.
	ReasonUnproven = "NoNodes"
	// ReasonNotWatched: Unknown. The spec has no watch, and no other watch has proven it.
	ReasonNotWatched = "NotWatched"
	// ReasonOriginal: Unknown. The image was not captured by Ortet.
	ReasonOriginal = "NotCaptured"
	// ReasonQuarantined: False. It is bad, and taken back; the message has the gate that it failed.
	ReasonQuarantined = "Quarantined"
)

// Reasons of Progressing.
const (
	// ReasonRunning: True. The operator runs what status.run shows.
	ReasonRunning = "Running"
	// ReasonHeld: True. Another process holds the pool's Lease: a Job or a person, whom the message
	// names. The operator waits.
	ReasonHeld = "HeldByOther"
	// ReasonQueued: True. A run is to begin, and as many as may run at once do.
	ReasonQueued = "Queued"
	// ReasonIdle: False. Nothing is to be done now; the message says what is next.
	ReasonIdle = "Idle"
)

// Reasons of Stalled. If a run was refused, its reason is the code of the problem, such as
// NoRoomForDisk (docs/reference/capture.md).
const (
	// ReasonGoing: False. Nothing needs a person.
	ReasonGoing = "NotStalled"
	// ReasonDuplicate: True. An older ScaleSetPool names the same scale set; delete one of them.
	ReasonDuplicate = "DuplicateScaleSet"
	// ReasonOutside: True. The scale set is in no resource group that the operator may use
	// (operator.resourceGroups of the chart).
	ReasonOutside = "OutsideResourceGroups"
	// ReasonScheduleInvalid: True. A schedule or time zone cannot be read, or a window is longer than
	// its period.
	ReasonScheduleInvalid = "ScheduleInvalid"
	// ReasonNodeFailed: True. A rollout stopped at a node, which stays cordoned; the message names it.
	ReasonNodeFailed = "NodeFailed"
	// ReasonNeedsPerson: True. A run ended with exit code 4; the message has what to do.
	ReasonNeedsPerson = "NeedsPerson"
	// ReasonRunFailed: True. A run failed; the operator tries again at the next window.
	ReasonRunFailed = "RunFailed"
)
