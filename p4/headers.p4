// What stands in packets, and what is known about one on its way through the switch.

header ethernet_t {
    mac_t dst;
    mac_t src;
    bit<16> type;
}

header arp_t { // for IPv4 over Ethernet
    bit<16> hardware;
    bit<16> protocol;
    bit<8> hardware_length;
    bit<8> protocol_length;
    bit<16> operation;
    mac_t sender_mac;
    ip_t sender;
    mac_t target_mac;
    ip_t target;
}

header ipv4_t { // without options
    bit<4> version;
    bit<4> ihl;
    bit<8> tos;
    bit<16> length;
    bit<16> id;
    bit<3> flags;
    bit<13> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    ip_t src;
    ip_t dst;
}

header icmp_t {
    bit<8> type;
    bit<8> code;
    bit<16> checksum;
}

header udp_t {
    bit<16> src;
    bit<16> dst;
    bit<16> length;
    bit<16> checksum;
}

header wiresum_t {
    bit<4> msg_type;
    bit<1> reserved;
    bit<3> size;
    bit<8> job;
    bit<32> tsi; // the chunk's number
    bit<1> version;
    bit<1> zero;
    bit<14> slot;
}

header exponents_t {
    bit<8> e0; // two's complement, both; see slots.p4
    bit<8> e1;
}

header values_t {
#define FIELD(i) bit<32> v##i;
    EACH_VALUE(FIELD)
}

// From the control plane: a packet to send, or slots to clear.
enum bit<8> Command {
    SEND = 0,  // out of port `argument`
    FLOOD = 1, // out of all ports
    CLEAR = 2  // the `slots` slots from `base` on; comes back as a packet-in when it is done
}

@controller_header("packet_out")
header packet_out_t {
    Command command;
    bit<16> argument;
    bit<16> base;
    bit<16> slots;
}

// To the control plane.
enum bit<8> Reason {
    ARP_REPLY = 0, // to a question of the switch
    CLEARED = 1    // the packet-out `argument` has been carried out
}

@controller_header("packet_in")
header packet_in_t {
    Reason reason;
    bit<16> ingress_port;
    bit<16> argument;
}

struct headers_t {
    packet_out_t packet_out;
    packet_in_t packet_in;
    ethernet_t ethernet;
    arp_t arp;
    ipv4_t ipv4;
    icmp_t icmp;
    udp_t udp;
    wiresum_t wiresum;
    exponents_t exponents;
    values_t values;
}

// What the tables say of a packet's sender: a rank of a job or, in a leaf of a tree of switches, the parent.
struct worker_t {
    member_t member;
    bit<8> job;       // as the sender calls it
    bit<32> rank_bit; // 1 << rank
    bit<8> ranks;     // of the job
    bit<16> base;     // the first slot of the job's pool
    bit<16> slots;    // pool size W, a power of two
    bit<16> group;    // multicast group of the job
    port_t port;      // where the sender is
    bool is_leaf;     // complete slots go to a parent
    member_t up;      // the parent
    port_t up_port;   // where it is
}

struct metadata_t {
    bit<16> zero; // stays 0
    worker_t worker;
    mac_t own_mac;
    Event event;
    Drop drop;
    bool is_mine;   // for the switch's own address
    bool is_member; // from a worker of a job, or a parent
    bool is_from_parent;
    bool is_result; // to be addressed to a member in egress
    bool is_flooded;
    bool is_rewritten; // the IPv4 checksum must be computed anew
    Reason reason;
    bool is_clear; // clears a cell
    bit<16> tag;   // by which the control plane knows what it asked for
    // Of the slot: where it stands, and what the registers said.
    slot_t slot;
    cell_t cell;
    bool is_new;     // begins a generation
    bool is_stale;   // neither begins, nor belongs to the newest or the one before
    bool is_current; // belongs to the newest generation
    bool is_known;   // its rank is among those seen, now
    bool is_fresh;   // its rank was not seen before
    bool is_complete;
    bool is_final; // the parent's result stands there, or there is no parent
    bit<32> keep; // all ones if the values that are stored count, else 0
    bit<32> take; // all ones if those in the packet count, else 0
    @field_list(1)
    bit<16> cursor; // the next cell to clear, kept from pass to pass
}
