// A packet that ends too early keeps the headers that it has; the rest stays unparsed, and the checks notice.

parser WiresumParser(
    packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {

    state start {
        // A resubmitted packet has lost its port; only those of the control plane are.
        transition select(standard_metadata.ingress_port, standard_metadata.instance_type) {
            (CPU_PORT, _): from_control_plane;
            (_, RESUBMITTED): from_control_plane;
            default: ethernet;
        }
    }

    state from_control_plane {
        packet.extract(hdr.packet_out);
        transition select(hdr.packet_out.command) {
            Command.CLEAR: accept;
            default: ethernet_only;
        }
    }

    state ethernet_only { // the control plane knows what it sends
        packet.extract(hdr.ethernet);
        transition accept;
    }

    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_ARP: arp;
            TYPE_IPV4: ipv4;
            default: accept;
        }
    }

    state arp {
        packet.extract(hdr.arp);
        transition accept;
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        // Version 4, no options, no fragment (bit 0 of the flags: more follow).
        transition select(hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.flags, hdr.ipv4.fragment, hdr.ipv4.protocol) {
            (4, 5, 0 &&& 1, 0, PROTOCOL_ICMP): icmp;
            (4, 5, 0 &&& 1, 0, PROTOCOL_UDP): udp;
            default: accept;
        }
    }

    state icmp {
        packet.extract(hdr.icmp);
        transition accept;
    }

    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst, hdr.udp.src) {
            (DATA_PORT, _): wiresum;
            (_, DATA_PORT): wiresum; // a result, which a leaf gets from its parent
            default: accept;
        }
    }

    state wiresum {
        packet.extract(hdr.wiresum);
        packet.extract(hdr.exponents);
        transition select(hdr.wiresum.msg_type, hdr.wiresum.size) {
            (MSG_VALUES, SIZE_CODE): values;
            default: accept;
        }
    }

    state values {
        packet.extract(hdr.values);
        transition accept;
    }
}
