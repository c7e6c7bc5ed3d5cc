// What the control plane asks for in a packet: to send one, or to clear a pool before a job begins.

control ControlPlane(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        if (hdr.packet_out.command == Command.CLEAR) {
            meta.is_clear = true;
            meta.tag = hdr.packet_out.argument;
            meta.worker.base = hdr.packet_out.base;
            meta.worker.slots = hdr.packet_out.slots;
        } else {
            if (hdr.packet_out.command == Command.SEND) {
                standard_metadata.egress_spec = (port_t)hdr.packet_out.argument;
            } else {
                standard_metadata.mcast_grp = FLOOD_GROUP;
            }
            hdr.packet_out.setInvalid();
        }
    }
}
