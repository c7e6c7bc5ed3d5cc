// Numbers of the protocol and sizes of this program.

#ifndef VALUES
#define VALUES 64
#endif
#if VALUES == 32
#define SIZE_CODE 0
#elif VALUES == 64
#define SIZE_CODE 1
#elif VALUES == 256
#define SIZE_CODE 3
#else
#error VALUES must be 32, 64 or 256
#endif

#ifndef SLOTS
#define SLOTS 2048 // shared by the pools of all jobs
#endif
#define CELLS (2 * SLOTS) // each slot has two versions
#define MEMBERS 1024      // ranks of all jobs; number 0 is nobody

const bit<16> DATA_PORT = 48864;
const bit<4> MSG_VALUES = 1;
const bit<4> MSG_EXPONENTS = 2;
const bit<16> SHORT_LENGTH = 8 + 10; // UDP header, wiresum header and exponents
const bit<16> FULL_LENGTH = 8 + 10 + 4 * VALUES;

typedef bit<48> mac_t;
typedef bit<32> ip_t;
typedef bit<9> port_t;
typedef bit<10> member_t; // a rank of a job, or a leaf's parent in it, numbered over all jobs
typedef bit<32> slot_t;   // a slot, numbered over all pools
typedef bit<32> cell_t;   // one version of a slot

const port_t CPU_PORT = 510; // where the control plane sends and receives packets
const bit<16> FLOOD_GROUP = 1;
const bit<32> REPLICATED = 5;  // instance_type of a multicast copy, in v1model
const bit<32> RESUBMITTED = 6; // and of a packet on its second way through ingress

const bit<16> TYPE_IPV4 = 0x0800;
const bit<16> TYPE_ARP = 0x0806;
const bit<8> PROTOCOL_ICMP = 1;
const bit<8> PROTOCOL_UDP = 17;

// What is counted for each member. Same order as COUNTERS of the software switch; "received" is the worker table's own.
enum bit<4> Event {
    NONE = 0,
    CONTRIBUTION = 1,
    DUPLICATE = 2,
    PREVIOUS = 3,
    STALE = 4,
    WRONG_JOB = 5,
    WRONG_SIZE = 6,
    OUTSIDE_POOL = 7,
    WRONG_INDEX = 8,
    RESERVED_BITS = 9,
    RESULT = 10,
    RETRANSMITTED = 11,
    PARTIAL = 12, // from a leaf to its parent, and again
    PARTIAL_AGAIN = 13,
    UNNEEDED = 14 // from the parent, of no use: the slot is final already, or not there yet
}

// Drops that belong to no member.
enum bit<3> Drop {
    NONE = 0,
    NO_SERVICE = 1, // sent to the switch, which does not serve it
    UNKNOWN_SOURCE = 2,
    BAD_CHECKSUM = 3,
    NO_HEADER = 4 // too short for Ethernet
}
