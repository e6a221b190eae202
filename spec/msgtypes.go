package spec

// The fleetmesh protocol identifiers (§ Control plane, Six new protocols). Peering
// and budget are required of every node; gossip/1.0 and compute/1.1 came later.
const (
	PIURIPeering   = PIURIBase + "peering/1.0"
	PIURIBudget    = PIURIBase + "budget/1.0"
	PIURISync      = PIURIBase + "sync/1.0"
	PIURIComplaint = PIURIBase + "complaint/1.0"
	PIURIStanding  = PIURIBase + "standing/1.0"
	PIURICompute   = PIURIBase + "compute/1.0"
	PIURICompute11 = PIURIBase + "compute/1.1"
	PIURIGossip    = PIURIBase + "gossip/1.0"
)

// Message types of the fleetmesh protocols: the protocol identifier, a slash and
// the message's name (§ Control plane).
const (
	MsgPeeringPropose    MessageType = PIURIPeering + "/propose"
	MsgPeeringAccept     MessageType = PIURIPeering + "/accept"
	MsgPeeringDecline    MessageType = PIURIPeering + "/decline"
	MsgPeeringAmend      MessageType = PIURIPeering + "/amend"
	MsgPeeringEnd        MessageType = PIURIPeering + "/end"
	MsgPeeringPeersQuery MessageType = PIURIPeering + "/peers-query"
	MsgPeeringPeers      MessageType = PIURIPeering + "/peers"

	MsgBudgetReceipt    MessageType = PIURIBudget + "/receipt"
	MsgBudgetReceiptAck MessageType = PIURIBudget + "/receipt-ack"
	MsgBudgetClose      MessageType = PIURIBudget + "/close"

	MsgSyncOpen      MessageType = PIURISync + "/open"
	MsgSyncFrame     MessageType = PIURISync + "/frame"
	MsgSyncWant      MessageType = PIURISync + "/want"
	MsgSyncDeliver   MessageType = PIURISync + "/deliver"
	MsgSyncDelivered MessageType = PIURISync + "/delivered"
	MsgSyncDone      MessageType = PIURISync + "/done"
	MsgSyncRefuse    MessageType = PIURISync + "/refuse"

	MsgComplaintNotice    MessageType = PIURIComplaint + "/notice"
	MsgComplaintResponse  MessageType = PIURIComplaint + "/response"
	MsgComplaintWithdrawn MessageType = PIURIComplaint + "/withdrawn"

	MsgStandingQuery   MessageType = PIURIStanding + "/query"
	MsgStandingAnswer  MessageType = PIURIStanding + "/answer"
	MsgStandingDecline MessageType = PIURIStanding + "/decline"

	MsgComputeQuote    MessageType = PIURICompute + "/quote"
	MsgComputeAccept   MessageType = PIURICompute + "/accept"
	MsgComputeProgress MessageType = PIURICompute + "/progress"
	MsgComputeSealed   MessageType = PIURICompute + "/sealed"
	MsgComputeSettled  MessageType = PIURICompute + "/settled"
	MsgComputeResult   MessageType = PIURICompute + "/result"
	MsgComputeRefuse   MessageType = PIURICompute + "/refuse"

	MsgCompute11StreamOpen  MessageType = PIURICompute11 + "/stream-open"
	MsgCompute11Chunk       MessageType = PIURICompute11 + "/chunk"
	MsgCompute11StreamClose MessageType = PIURICompute11 + "/stream-close"

	MsgGossipGraft   MessageType = PIURIGossip + "/graft"
	MsgGossipPrune   MessageType = PIURIGossip + "/prune"
	MsgGossipPublish MessageType = PIURIGossip + "/publish"
	MsgGossipIhave   MessageType = PIURIGossip + "/ihave"
	MsgGossipIwant   MessageType = PIURIGossip + "/iwant"
)
